//! Stream tables of another role, and a catalog of another role. The tests catch a command that runs a query,
//! or code of the query's owner, with the rights of a role other than the owner. A superuser is the worst
//! such role.

use super::{BY_REGION, Role};
use crate::support::{newest_server, run};

/// All commands that run, plan or change a stream table.
const COMMANDS: &[&[&str]] = &[
    &["refresh", "public.sums"],
    &["refresh", "public.sums", "--full"],
    &["check", "public.sums"],
    &["explain", "public.sums"],
    &["alter", "public.sums", "--schedule", "1h"],
    &["alter", "public.sums", "--mode", "full"],
    &["alter", "public.sums", "--suspend"],
    &["alter", "public.sums", "--resume"],
    &["alter", "public.sums", "--query", "SELECT 1 AS x"],
    &["create", "public.sums", "--or-replace", "--query", "SELECT 1 AS x"],
    &["drop", "public.sums"],
];

/// Returns the definition of a function that raises an error when any role but `owner` runs or plans it.
fn trap(owner: &str) -> String {
    format!(
        "CREATE FUNCTION trap(v bigint) RETURNS bigint LANGUAGE plpgsql IMMUTABLE AS \
         $$BEGIN IF current_user <> '{owner}' THEN RAISE 'CAUGHT as %', current_user; END IF; RETURN v; END$$"
    )
}

#[test]
fn nobody_runs_the_query_of_another_role() {
    newest_server(async |db| {
        let admin = Role::superuser(db);
        let app = Role::owner(db).await;
        let member = Role::create(db, "member").await;
        admin.does(&["init", "--quiet"]);
        let s = db.session().await;
        run(&s, &format!("SELECT pgtrickle.grant_to('{0}'); GRANT {1} TO {0}", member.name, app.name)).await;
        app.run_sql(db, &trap("postgres")).await;
        let query = "SELECT trap(count(*)) AS n, trap(7) AS m FROM orders";
        admin.does(&["create", "sums", "--query", query, "--mode", "full", "--quiet"]);
        // The stream table gets another owner.
        run(&s, &format!("ALTER TABLE sums OWNER TO {}", app.name)).await;
        app.run_sql(db, &trap(&app.name).replace("CREATE", "CREATE OR REPLACE")).await;
        for command in COMMANDS {
            let ran = admin.trickle(command);
            let said = ran.err.contains(&format!("belongs to {}", app.name)) && !ran.err.contains("CAUGHT");
            assert!(ran.code != 0 && said, "{command:?}: {}{}", ran.out, ran.err);
        }
        let all = admin.trickle(&["refresh", "--quiet"]);
        assert!(all.code == 0 && all.err.is_empty(), "{}", all.err);
        // One role owns the catalog. No other role can use the catalog through the program, even if the role
        // has rights by `grant_to` or is a member of the owner.
        for role in [&app, &member] {
            for command in COMMANDS {
                let ran = role.trickle(command);
                assert!(ran.code != 0 && !ran.err.contains("CAUGHT"), "{command:?}: {}{}", ran.out, ran.err);
            }
        }
    });
}

#[test]
fn a_superuser_works_with_no_ordinary_roles_catalog() {
    newest_server(async |db| {
        let (admin, app) = (Role::superuser(db), Role::owner(db).await);
        app.does(&["init", "--quiet"]);
        app.does(&["create", "sums", "--query", BY_REGION, "--quiet"]);
        for command in COMMANDS.iter().chain(&[
            &["init"][..],
            &["status"],
            &["history", "public.sums"],
            &["refresh"],
            &["create", "own", "--query", "SELECT 1 AS x"],
            &["run"],
            &["uninstall"],
        ]) {
            let ran = admin.trickle(command);
            let said = ran.err.contains(&format!("belongs to {}", app.name)) && ran.err.contains("superuser");
            assert!(ran.code == 2 && said, "{command:?}: {}{}", ran.out, ran.err);
        }
        let told = admin.trickle(&["doctor"]);
        assert!(told.code == 1 && told.out.contains("this role is a superuser"), "{}", told.out);
        app.does(&["refresh", "--quiet"]);
    });
}
