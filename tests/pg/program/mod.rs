//! The program with real servers. The program works as an ordinary role that owns its database, without the
//! rights of a superuser.

mod apply;
pub(crate) mod bench;
mod completions;
mod demo;
mod doctor;
mod evolving;
mod failover;
mod giving_way;
mod leading;
mod leftovers;
mod owners;
mod pooled;
mod protection;
mod refresher;
mod refusals;
mod secrets;
mod secured;
mod seeing;
mod session;
mod settings;
mod told;
mod waiting;

use crate::support::{Db, planted};
use serde_json::Value;
use std::process::Command;

/// Tables of an ordinary shop, so large that a delta costs less than a recompute.
const SHOP: &str = "
    CREATE TABLE customers (id int PRIMARY KEY, name text NOT NULL, region text);
    CREATE TABLE orders (id int PRIMARY KEY, customer int NOT NULL, amount numeric(10,2), note text);
    INSERT INTO customers SELECT i, 'c' || i, 'r' || i % 3 FROM generate_series(1, 20) i;
    INSERT INTO orders SELECT i, 1 + i % 20, i * 1.5, 'n' FROM generate_series(1, 20000) i;";

const BY_REGION: &str = "SELECT c.region, count(*) AS orders, sum(o.amount) AS total FROM orders o \
                         JOIN customers c ON c.id = o.customer GROUP BY c.region";

/// A finished run of the program.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    /// Runs the program to its end.
    #[track_caller]
    fn of(command: &mut Command) -> Ran {
        let out = planted::output(command);
        let text = |b: Vec<u8>| String::from_utf8(b).unwrap();
        Ran { code: out.status.code().unwrap_or(-1), out: text(out.stdout), err: text(out.stderr) }
    }

    /// Asserts success, and returns standard output, which must be one JSON document.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        assert_eq!(self.code, 0, "{}", self.err);
        serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("{e}\n{}\n{}", self.out, self.err))
    }
}

/// A role, and the settings by which it connects to a test's database.
pub(crate) struct Role {
    pub(crate) name: String,
    settings: String,
}

impl Role {
    /// Creates a role without any right. Roles belong to the whole server, so the role's name contains the
    /// name of the database.
    pub(crate) async fn create(db: &Db, name: &str) -> Role {
        let s = db.session().await;
        let database: String = s.client().query_one("SELECT current_database()", &[]).await.unwrap().get(0);
        let name = format!("{name}_{database}");
        s.client().batch_execute(&format!("CREATE ROLE {name} LOGIN")).await.unwrap();
        Role { settings: format!("{} user={name}", db.settings()), name }
    }

    /// Returns the superuser of the test's servers.
    pub(crate) fn superuser(db: &Db) -> Role {
        Role { name: "postgres".to_owned(), settings: db.settings() }
    }

    /// Creates the ordinary owner of the database, with the tables of the shop.
    pub(crate) async fn owner(db: &Db) -> Role {
        let role = Role::create(db, "app").await;
        let owns = format!(
            "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I OWNER TO {}', current_database()); END $$",
            role.name
        );
        db.session().await.client().batch_execute(&owns).await.unwrap();
        role.run_sql(db, SHOP).await;
        role
    }

    /// Runs statements in a session of this role.
    pub(crate) async fn run_sql(&self, db: &Db, sql: &str) {
        let s = db.session().await;
        s.client().batch_execute(&format!("SET SESSION AUTHORIZATION {}", self.name)).await.unwrap();
        s.client().batch_execute(sql).await.unwrap();
    }

    /// Returns a command for the program as this role. The command lacks those environment variables of this
    /// machine that would change the program's behaviour.
    fn command(&self, args: &[&str]) -> Command {
        let mut c = planted::program();
        c.env("DATABASE_URL", &self.settings).args(args);
        c
    }

    pub(crate) fn trickle(&self, args: &[&str]) -> Ran {
        Ran::of(&mut self.command(args))
    }

    /// Runs the program, and returns standard output. Asserts success, and that standard error is empty.
    #[track_caller]
    pub(crate) fn does(&self, args: &[&str]) -> String {
        let ran = self.trickle(args);
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "trickle {args:?}");
        ran.out
    }
}

/// Returns the names of the members of a JSON object, in order.
fn keys(object: &Value) -> Vec<&str> {
    object.as_object().unwrap_or_else(|| panic!("{object} is no object")).keys().map(String::as_str).collect()
}

/// Returns the numbers of objects in a database, for tests that compare these numbers before and after a
/// command.
async fn inventory(db: &Db) -> Vec<i64> {
    let s = db.session().await;
    let mut counts = Vec::new();
    for catalog in
        ["pg_class", "pg_trigger", "pg_proc", "pg_namespace", "pg_type", "pg_constraint", "pg_rewrite"]
    {
        let text = format!("SELECT count(*) FROM {catalog}");
        counts.push(s.client().query_one(&text, &[]).await.unwrap().get(0));
    }
    counts
}
