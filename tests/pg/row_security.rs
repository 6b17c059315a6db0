//! Row security starts or stops applying to the owner of a stream table, by each kind of change that can
//! cause it. The tests catch a stream table that shows rows which its owner may not see, or lacks rows which
//! its owner may see. Roles, memberships, owners and views decide which roles row security concerns. So the
//! source itself need not change.

use crate::program::Role;
use crate::support::{Db, run, todays_server};
use trickle_client::Session;

/// A table with row security: every role may see only the rows of tenant `a`.
const TABLE: &str = "
    CREATE TABLE t (id int PRIMARY KEY, tenant text NOT NULL);
    INSERT INTO t SELECT i, CASE i % 2 WHEN 0 THEN 'a' ELSE 'b' END FROM generate_series(1, 20) i;
    ALTER TABLE t ENABLE ROW LEVEL SECURITY;
    CREATE POLICY own ON t FOR SELECT USING (tenant = 'a');";

/// A kind of change of the visible rows. `before` has a superuser's statements before the creation of the
/// stream tables. `change` has statements that change which rows the stream tables' owner `APP` may see.
/// `back` has statements that undo the change. `BOSS` is another role.
struct Way {
    name: &'static str,
    since: u32,
    reads: &'static str,
    before: &'static str,
    change: &'static str,
    back: &'static str,
}

const fn way(name: &'static str, before: &'static str, change: &'static str, back: &'static str) -> Way {
    Way { name, since: 15, reads: "t", before, change, back }
}

const fn by_view(name: &'static str, before: &'static str, change: &'static str, back: &'static str) -> Way {
    Way { reads: "v", ..way(name, before, change, back) }
}

const STARTS: &[Way] = &[
    way(
        "the owner of the source",
        "ALTER TABLE t OWNER TO APP",
        "ALTER TABLE t OWNER TO BOSS; GRANT SELECT ON t TO APP",
        "ALTER TABLE t OWNER TO APP",
    ),
    way(
        "membership in the owner of the source",
        "ALTER TABLE t OWNER TO BOSS; GRANT SELECT ON t TO APP; GRANT BOSS TO APP",
        "REVOKE BOSS FROM APP",
        "GRANT BOSS TO APP",
    ),
    Way {
        since: 16,
        ..way(
            "membership that inherits nothing",
            "ALTER TABLE t OWNER TO BOSS; GRANT SELECT ON t TO APP; GRANT BOSS TO APP",
            "GRANT BOSS TO APP WITH INHERIT FALSE",
            "GRANT BOSS TO APP WITH INHERIT TRUE",
        )
    },
    way(
        "BYPASSRLS",
        "ALTER TABLE t OWNER TO APP; ALTER TABLE t FORCE ROW LEVEL SECURITY; ALTER ROLE APP BYPASSRLS",
        "ALTER ROLE APP NOBYPASSRLS",
        "ALTER ROLE APP BYPASSRLS",
    ),
    way(
        "SUPERUSER",
        "GRANT SELECT ON t TO APP; ALTER ROLE APP SUPERUSER",
        "ALTER ROLE APP NOSUPERUSER",
        "ALTER ROLE APP SUPERUSER",
    ),
    way(
        "FORCE",
        "ALTER TABLE t OWNER TO APP",
        "ALTER TABLE t FORCE ROW LEVEL SECURITY",
        "ALTER TABLE t NO FORCE ROW LEVEL SECURITY",
    ),
    by_view(
        "membership of the view's owner",
        "ALTER TABLE t OWNER TO APP; GRANT SELECT ON t TO BOSS; GRANT APP TO BOSS; \
         ALTER VIEW v OWNER TO BOSS; GRANT SELECT ON v TO APP",
        "REVOKE APP FROM BOSS",
        "GRANT APP TO BOSS",
    ),
    by_view(
        "the owner of the view",
        "ALTER TABLE t OWNER TO APP; GRANT SELECT ON t TO BOSS; ALTER VIEW v OWNER TO APP",
        "ALTER VIEW v OWNER TO BOSS; GRANT SELECT ON v TO APP",
        "ALTER VIEW v OWNER TO APP",
    ),
    by_view(
        "a view that reads as its owner again",
        "ALTER TABLE t OWNER TO APP; GRANT SELECT ON t TO BOSS; ALTER VIEW v OWNER TO BOSS; \
         ALTER VIEW v SET (security_invoker = on); GRANT SELECT ON v TO APP",
        "ALTER VIEW v RESET (security_invoker)",
        "ALTER VIEW v SET (security_invoker = yes)",
    ),
    by_view(
        "a view in a view that reads as its caller",
        "ALTER TABLE t OWNER TO APP; ALTER TABLE t FORCE ROW LEVEL SECURITY; ALTER ROLE APP BYPASSRLS; \
         ALTER VIEW v RENAME TO w; ALTER VIEW w SET (security_invoker = true); GRANT SELECT ON t, w TO BOSS; \
         CREATE VIEW v AS SELECT * FROM w; ALTER VIEW v OWNER TO BOSS; GRANT SELECT ON v, w TO APP",
        "ALTER ROLE APP NOBYPASSRLS",
        "ALTER ROLE APP BYPASSRLS",
    ),
];

/// Changes of policies, while row security is active all the time.
const POLICIES: &[Way] = &[
    way(
        "a policy altered",
        SECURED,
        "ALTER POLICY own ON t USING (tenant = 'b')",
        "ALTER POLICY own ON t USING (tenant = 'a')",
    ),
    way("a policy added", SECURED, "CREATE POLICY more ON t USING (tenant = 'b')", "DROP POLICY more ON t"),
    way(
        "a restrictive one",
        SECURED,
        "CREATE POLICY less ON t AS RESTRICTIVE USING (id > 4)",
        "DROP POLICY less ON t",
    ),
    way(
        "the only policy dropped",
        SECURED,
        "DROP POLICY own ON t",
        "CREATE POLICY own ON t USING (tenant = 'a')",
    ),
    way(
        "row security switched off",
        SECURED,
        "ALTER TABLE t DISABLE ROW LEVEL SECURITY",
        "ALTER TABLE t ENABLE ROW LEVEL SECURITY",
    ),
    way(
        "membership in a role that a policy names",
        "ALTER TABLE t OWNER TO BOSS; GRANT SELECT ON t TO APP; CREATE ROLE AUDIT; \
         CREATE POLICY audit ON t TO AUDIT USING (true)",
        "GRANT AUDIT TO APP",
        "REVOKE AUDIT FROM APP",
    ),
    way(
        "a function that a policy calls",
        "ALTER TABLE t OWNER TO BOSS; GRANT SELECT ON t TO APP; \
         CREATE FUNCTION shown(text) RETURNS bool LANGUAGE sql AS $$SELECT $1 = 'a'$$; \
         ALTER POLICY own ON t USING (shown(tenant))",
        "CREATE OR REPLACE FUNCTION shown(text) RETURNS bool LANGUAGE sql AS $$SELECT $1 = 'b'$$",
        "CREATE OR REPLACE FUNCTION shown(text) RETURNS bool LANGUAGE sql AS $$SELECT $1 = 'a'$$",
    ),
];

const SECURED: &str = "ALTER TABLE t OWNER TO BOSS; GRANT SELECT ON t TO APP";

/// A database with two stream tables: `by_delta`, in mode AUTO, and `whole`, in mode FULL.
struct Case<'d> {
    db: &'d Db,
    admin: Session,
    app: Role,
    boss: Role,
    way: &'d Way,
}

impl<'d> Case<'d> {
    async fn begin(db: &'d Db, way: &'d Way, number: usize) -> Case<'d> {
        let (app, boss) = (
            Role::create(db, &format!("app{number}")).await,
            Role::create(db, &format!("boss{number}")).await,
        );
        let case = Case { db, admin: db.session().await, app, boss, way };
        let owns = "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I OWNER TO APP', current_database()); END $$";
        case.admin(owns).await;
        case.admin(
            "DROP SCHEMA public CASCADE; CREATE SCHEMA public AUTHORIZATION pg_database_owner; \
                    GRANT USAGE ON SCHEMA public TO PUBLIC",
        )
        .await;
        case.admin(TABLE).await;
        if way.reads == "v" {
            case.admin("CREATE VIEW v AS SELECT id, tenant FROM t").await;
        }
        case.admin(way.before).await;
        case.app.does(&["init", "--quiet"]);
        let query = format!("SELECT id, tenant FROM {} WHERE id > 2", way.reads);
        for (name, mode) in [("by_delta", "auto"), ("whole", "full")] {
            // The program may print a notice about full refreshes. So the test checks only the exit code.
            let made = case.app.trickle(&["create", name, "--query", &query, "--mode", mode, "--quiet"]);
            assert_eq!(made.code, 0, "{}: {made:?}", way.name);
        }
        case
    }

    async fn admin(&self, sql: &str) {
        let of = |role: &str| sql.replace("AUDIT", &format!("audit_{role}"));
        run(&self.admin, &of(&self.app.name).replace("APP", &self.app.name).replace("BOSS", &self.boss.name))
            .await;
    }

    /// Refreshes both stream tables, and compares them with the rows that their owner sees. Returns the
    /// program's output.
    async fn shows_what_its_owner_sees(&self, when: &str) -> String {
        let ran = self.app.trickle(&["refresh", "by_delta", "whole", "--json"]);
        assert_eq!(ran.code, 0, "{}, {when}: {}", self.way.name, ran.err);
        let s = self.db.session().await;
        run(&s, &format!("SET ROLE {}", self.app.name)).await;
        for table in ["by_delta", "whole"] {
            let text = format!(
                "SELECT (SELECT array_agg(id ORDER BY id) FROM {} WHERE id > 2), (SELECT array_agg(id ORDER BY id) FROM {table})",
                self.way.reads
            );
            let row = s.client().query_one(&text, &[]).await.unwrap();
            let (seen, stored): (Option<Vec<i32>>, Option<Vec<i32>>) = (row.get(0), row.get(1));
            assert_eq!(stored, seen, "{table} by {}, {when}", self.way.name);
        }
        ran.out
    }

    async fn mode(&self) -> String {
        let text = "SELECT refresh_mode FROM pgtrickle.pgt_stream_tables WHERE pgt_name = 'by_delta'";
        self.admin.client().query_one(text, &[]).await.unwrap().get(0)
    }

    async fn end(self) {
        self.admin(
            "DROP SCHEMA public, pgtrickle, pgtrickle_changes CASCADE; ALTER ROLE APP NOSUPERUSER; \
                    CREATE SCHEMA public AUTHORIZATION pg_database_owner",
        )
        .await;
    }
}

#[test]
fn row_security_that_begins_or_ends_recomputes() {
    todays_server(async |db| {
        for (number, way) in STARTS.iter().enumerate().filter(|(_, w)| db.major() >= w.since) {
            let case = Case::begin(db, way, number).await;
            assert_eq!(case.mode().await, "DIFFERENTIAL", "{}", way.name);
            case.shows_what_its_owner_sees("before").await;
            case.admin(way.change).await;
            let said = case.shows_what_its_owner_sees("when it applies").await;
            assert!(said.contains("row security"), "{}: {said}", way.name);
            assert_eq!(case.mode().await, "FULL", "{}", way.name);
            case.admin("INSERT INTO t VALUES (31, 'a'), (32, 'b'); DELETE FROM t WHERE id IN (3, 4)").await;
            case.shows_what_its_owner_sees("after changes").await;
            case.admin(way.back).await;
            case.shows_what_its_owner_sees("when it does not apply any more").await;
            assert_eq!(case.mode().await, "DIFFERENTIAL", "{}", way.name);
            case.admin("INSERT INTO t VALUES (33, 'a'), (34, 'b')").await;
            case.shows_what_its_owner_sees("after more changes").await;
            case.end().await;
        }
    });
}

#[test]
fn other_policies_recompute_what_they_apply_to() {
    todays_server(async |db| {
        for (number, way) in POLICIES.iter().enumerate() {
            let case = Case::begin(db, way, 50 + number).await;
            assert_eq!(case.mode().await, "FULL", "{}", way.name);
            for (sql, when) in [("", "before"), (way.change, "changed"), (way.back, "changed back")] {
                case.admin(sql).await;
                case.shows_what_its_owner_sees(when).await;
                case.admin("INSERT INTO t SELECT max(id) + 1, 'b' FROM t; INSERT INTO t SELECT max(id) + 1, 'a' FROM t")
                    .await;
                case.shows_what_its_owner_sees(&format!("{when}, after changes")).await;
            }
            case.end().await;
        }
    });
}

/// Writers may be unable to decide which rows the owner of a stream table may see. Such a stream table cannot
/// be IMMEDIATE.
#[test]
fn immediate_ends_where_row_security_begins() {
    todays_server(async |db| {
        for (number, way) in STARTS.iter().enumerate().filter(|(_, w)| db.major() >= w.since) {
            let case = Case::begin(db, way, 100 + number).await;
            let query = format!("SELECT id, tenant FROM {} WHERE id > 2", way.reads);
            case.app.does(&["create", "kept", "--query", &query, "--mode", "immediate", "--quiet"]);
            case.admin(way.change).await;
            let refused = case.app.trickle(&["refresh", "kept"]);
            let said = refused.err.contains("kept cannot be kept any more")
                && refused.err.contains("row-level security");
            assert!(refused.code != 0 && said, "{}: {}", way.name, refused.err);
            let left = "SELECT count(*) FROM pg_trigger g JOIN pg_proc p ON p.oid = g.tgfoid WHERE starts_with(p.proname, 'immediate_')";
            assert_eq!(crate::support::count(&case.admin, left).await, 0, "{}", way.name);
            case.admin("INSERT INTO t VALUES (31, 'a'), (32, 'b')").await;
            case.end().await;
        }
    });
}
