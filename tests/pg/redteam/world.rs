//! The roles, tables and stream tables of an attempt, and the verdict on the attempt.

use super::operations::{self, Keeping, Operation};
use super::script::{Actor, Attempt, By, Step, Wanted};
use crate::support::Driver;
use futures_util::FutureExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio_postgres::SimpleQueryMessage;
use trickle_client::throwaway::{self, Server};
use trickle_client::{NewStreamTable, Session};

/// Settings of the servers, also of servers with the extension's workers. The workers check often, and
/// refresh only stream tables with a short schedule.
const SETTINGS: &[&str] = &[
    "max_connections=200",
    "shared_buffers=64MB",
    "wal_level=logical",
    "max_prepared_transactions=20",
    "jit=off",
];
const WORKERS: &[&str] = &[
    "shared_preload_libraries=pg_trickle",
    "pg_trickle.scheduler_interval_ms=50",
    "pg_trickle.min_schedule_seconds=0.01",
    "max_worker_processes=64",
];

/// Returns all servers with their versions. With the extension, the servers run its workers.
fn servers() -> &'static [(u32, Server)] {
    static SERVERS: OnceLock<Vec<(u32, Server)>> = OnceLock::new();
    SERVERS.get_or_init(|| {
        let settings =
            if Driver::is_the_servers() { [SETTINGS, WORKERS].concat() } else { SETTINGS.to_vec() };
        let start = |(major, binaries)| {
            let binaries: std::path::PathBuf = binaries;
            (major, Server::start(&binaries, &format!("red{major}"), &settings).unwrap())
        };
        let mut servers: Vec<_> = throwaway::find().unwrap().into_iter().map(start).collect();
        runtime().block_on(async {
            for (major, s) in &mut servers {
                s.ready().await.unwrap_or_else(|e| panic!("PostgreSQL {major}: {e}"));
            }
        });
        servers
    })
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// A database for the attempts of one file, with roles of its own.
pub(super) struct Place {
    server: &'static Server,
    /// The position of the database's server among all servers.
    pub(super) nth: usize,
    way: String,
    number: AtomicU32,
}

impl Place {
    fn database(&self) -> String {
        format!("red_{}_{}", self.way, self.number.load(Ordering::Relaxed))
    }

    pub(super) async fn session(&self, role: &str) -> Session {
        let mut config = self.server.config(&self.database());
        Session::connect(config.user(role)).await.unwrap_or_else(|e| panic!("{role}: {e:?}"))
    }

    /// Replaces the database by a new one, so that an attempt finds no remains of the previous attempt.
    async fn renew(&self) {
        let s = Session::connect(&self.server.config("postgres")).await.unwrap();
        say(&s, &format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.database())).await.unwrap();
        self.number.fetch_add(1, Ordering::Relaxed);
        say(&s, &format!("CREATE DATABASE {} TEMPLATE template0", self.database())).await.unwrap();
        for role in ["mallory", "alice", "wilma"] {
            run_in(self, &s, &ROLE.replace("WHOM", role)).await;
        }
    }
}

/// A statement that makes a role without rights. If the role exists, the statement takes its attributes,
/// settings and memberships away.
const ROLE: &str = "DO $$ DECLARE g name; BEGIN
    BEGIN CREATE ROLE WHOM LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END;
    ALTER ROLE WHOM NOSUPERUSER NOBYPASSRLS NOCREATEROLE NOCREATEDB; ALTER ROLE WHOM RESET ALL;
    FOR g IN SELECT roleid::regrole FROM pg_auth_members WHERE member = 'WHOM'::regrole LOOP EXECUTE format('REVOKE %s FROM WHOM', g); END LOOP;
END $$";

/// Runs a test on every server, side by side, and fails with the texts that the test returns.
pub(super) fn each_server(way: &str, test: impl AsyncFn(&Place) -> Vec<String> + Sync) {
    let run = |nth: usize, server: &'static Server| {
        let place = Place { server, nth, way: way.to_owned(), number: AtomicU32::new(0) };
        let done = catch_unwind(AssertUnwindSafe(|| runtime().block_on(test(&place))));
        runtime().block_on(async {
            let s = Session::connect(&server.config("postgres")).await.unwrap();
            let _ = say(&s, &format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", place.database())).await;
        });
        done.unwrap_or_else(|_| vec!["panicked".to_owned()])
    };
    let wrong: Vec<String> = std::thread::scope(|scope| {
        let all = servers().iter().enumerate();
        let running: Vec<_> =
            all.map(|(nth, (major, s))| (major, scope.spawn(move || run(nth, s)))).collect();
        let each = |(major, t): (&u32, std::thread::ScopedJoinHandle<'_, Vec<String>>)| {
            t.join().unwrap().into_iter().map(|w| format!("PostgreSQL {major}: {w}")).collect::<Vec<_>>()
        };
        running.into_iter().flat_map(each).collect()
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Fills the names of this place's roles and database, and the version of the catalog, into a text. Returns
/// the text.
pub(super) fn name_of(place: &Place, text: &str) -> String {
    let text = text
        .replace("{database}", &place.database())
        .replace("{version}", &trickle_client::schema::VERSION.to_string());
    ["mallory", "alice", "wilma"]
        .iter()
        .fold(text, |text, role| text.replace(role, &format!("{role}_{}", place.way)))
}

pub(super) fn role(place: &Place, role: &str) -> String {
    name_of(place, role)
}

/// Runs statements. An error contains the whole message of the server.
pub(super) async fn say(s: &Session, sql: &str) -> Result<(), String> {
    tell(s, sql).await.map(drop).map_err(|(code, said)| format!("{code} {said}\n        {sql}"))
}

/// Runs statements, and returns their rows as text. An error contains the SQLSTATE and the whole message of
/// the server.
async fn tell(s: &Session, sql: &str) -> Result<String, (String, String)> {
    match s.client().simple_query(sql).await {
        Ok(messages) => {
            let mut text = String::new();
            for message in messages {
                if let SimpleQueryMessage::Row(row) = message {
                    for i in 0..row.len() {
                        text.push_str(row.get(i).unwrap_or("NULL"));
                        text.push(' ');
                    }
                    text.push('\n');
                }
            }
            Ok(text)
        }
        Err(e) => {
            let code = e.code().map_or_else(String::new, |c| c.code().to_owned());
            Err((code, e.as_db_error().map_or_else(|| e.to_string(), |e| format!("{e:?}"))))
        }
    }
}

pub(super) async fn run_in(place: &Place, s: &Session, sql: &str) {
    let sql = name_of(place, sql);
    say(s, &sql).await.unwrap_or_else(|e| panic!("{e}"));
}

/// Returns the number of rows in which two queries differ.
pub(super) async fn different(s: &Session, a: &str, b: &str) -> Result<i64, String> {
    let text = format!("SELECT count(*) FROM (({a} EXCEPT ALL {b}) UNION ALL ({b} EXCEPT ALL {a})) d");
    match s.client().query_one(&text, &[]).await {
        Ok(row) => Ok(row.get(0)),
        Err(e) => Err(format!("{e:?}")),
    }
}

/// Objects that exist before an attempt. `OWNER` owns `shop.t`.
const WORLD: &str = "
CREATE TABLE public.ran (who text, what text); GRANT INSERT ON public.ran TO PUBLIC;
CREATE SEQUENCE public.as_postgres; CREATE SEQUENCE public.as_alice; GRANT USAGE ON SEQUENCE public.as_postgres, public.as_alice TO PUBLIC;
CREATE SCHEMA alice AUTHORIZATION alice; CREATE SCHEMA shop AUTHORIZATION OWNER; GRANT USAGE ON SCHEMA shop, alice TO PUBLIC;
SET ROLE alice;
CREATE TABLE alice.vault (id int PRIMARY KEY, word text); INSERT INTO alice.vault VALUES (1, 'SECRET'), (2, 'SECRET too');
SET ROLE OWNER;
CREATE TABLE shop.t (id int PRIMARY KEY, v int, word text); INSERT INTO shop.t SELECT i, i % 5, 'WORD' || i FROM generate_series(1, 20) i;
GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE ON shop.t TO wilma;
RESET ROLE";

/// The functions that mallory has from the beginning. Each function notes the role as which it ran, and tries
/// to get more rights. A sequence keeps the note if the transaction is rolled back.
const MALLORY: &str = "
CREATE FUNCTION mallory.note(what text) RETURNS void LANGUAGE plpgsql AS $f$ BEGIN
    INSERT INTO public.ran VALUES (current_user, what);
    BEGIN PERFORM nextval('public.as_' || current_user); EXCEPTION WHEN OTHERS THEN NULL; END;
    BEGIN ALTER ROLE mallory SUPERUSER; EXCEPTION WHEN OTHERS THEN NULL; END;
END $f$;
CREATE TYPE mallory.pair AS (x int);
CREATE FUNCTION mallory.to_int(mallory.pair) RETURNS int LANGUAGE plpgsql AS $f$ BEGIN PERFORM mallory.note('int'); RETURN $1.x; END $f$;
CREATE FUNCTION mallory.to_text(mallory.pair) RETURNS text LANGUAGE plpgsql AS $f$ BEGIN PERFORM mallory.note('text'); RETURN 'x'; END $f$;
CREATE FUNCTION mallory.to_json(mallory.pair) RETURNS json LANGUAGE plpgsql AS $f$ BEGIN PERFORM mallory.note('json'); RETURN '1'; END $f$;
CREATE FUNCTION mallory.same(mallory.pair, mallory.pair) RETURNS bool LANGUAGE plpgsql AS $f$ BEGIN PERFORM mallory.note('='); RETURN true; END $f$;
CREATE FUNCTION mallory.compare(mallory.pair, mallory.pair) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $f$ BEGIN PERFORM mallory.note('compare'); RETURN 0; END $f$;
CREATE FUNCTION mallory.hash(mallory.pair) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $f$ BEGIN PERFORM mallory.note('hash'); RETURN 0; END $f$;
CREATE FUNCTION mallory.yes(int) RETURNS bool LANGUAGE plpgsql IMMUTABLE AS $f$ BEGIN PERFORM mallory.note('check of int'); RETURN true; END $f$;
CREATE FUNCTION mallory.yes(text) RETURNS bool LANGUAGE plpgsql IMMUTABLE AS $f$ BEGIN PERFORM mallory.note('check of text'); RETURN true; END $f$;
CREATE FUNCTION mallory.give(int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $f$ BEGIN PERFORM mallory.note('give int'); RETURN $1; END $f$;
CREATE FUNCTION mallory.give(text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $f$ BEGIN PERFORM mallory.note('give text'); RETURN $1; END $f$;
CREATE FUNCTION mallory.fire() RETURNS trigger LANGUAGE plpgsql AS $f$ BEGIN PERFORM mallory.note('trigger'); IF TG_OP = 'DELETE' THEN RETURN OLD; END IF; RETURN NEW; END $f$;
GRANT USAGE ON SCHEMA mallory TO PUBLIC";

/// Makes an attempt, and returns a text for each thing that the attempt achieved. An attempt that failed has
/// no texts.
pub(super) async fn make(
    place: &Place,
    a: &Attempt,
    keeping: Keeping,
    operations: &[Operation],
) -> Vec<String> {
    place.renew().await;
    let mut got = Vec::new();
    match AssertUnwindSafe(go(place, a, keeping, operations, &mut got)).catch_unwind().await {
        Ok(Ok(())) => {}
        Ok(Err(e)) => got.push(format!("cannot be made: {e}")),
        Err(e) => got.push(format!("cannot be made: {}", e.downcast_ref::<String>().map_or("", |e| e))),
    }
    let admin = Session::connect(&place.server.config("postgres")).await.unwrap();
    let supers = "SELECT string_agg(rolname, ', ') FROM pg_roles WHERE rolsuper AND rolname <> 'postgres'";
    let supers: Option<String> = admin.client().query_one(supers, &[]).await.unwrap().get(0);
    got.extend(
        supers.filter(|s| s.contains(&format!("_{}", place.way))).map(|s| format!("a superuser now: {s}")),
    );
    got.dedup();
    got
}

/// The sessions of an attempt.
struct Sessions {
    admin: Session,
    mallory: Session,
    held: Session,
    alice: Session,
    wilma: Session,
}

async fn go(
    place: &Place,
    a: &Attempt,
    keeping: Keeping,
    operations: &[Operation],
    got: &mut Vec<String>,
) -> Result<(), String> {
    let mut heard = String::new();
    let Some(s) = begin(place, a, keeping, got).await? else { return Ok(()) };
    for step in &a.before {
        take(place, &s, step, &mut heard, got).await?;
    }
    let mut t = operations::open(place, keeping).await;
    let query = keep(place, a, keeping, &s, &mut t).await?;
    let before = catalog(place, &s.admin).await;
    for step in &a.then {
        take(place, &s, step, &mut heard, got).await?;
    }
    let after = catalog(place, &s.admin).await;
    let given = a.then.iter().any(|step| step.by == By::Admin && step.sql.contains("OWNER TO"));
    if !a.actor.owns_the_source() && !given {
        let gone = before.iter().filter(|b| !after.contains(b));
        got.extend(gone.map(|b| format!("writes in the catalog: {b}")));
    }
    let (target, query) = if a.own {
        (role(place, "mallory.own"), role(place, OWN))
    } else {
        ("public.kept".to_owned(), query)
    };
    let refreshed =
        operate(place, a, &s, &mut t, Kept { keeping, target: &target, query: &query }, operations, got)
            .await;
    let expected = a.expect.as_ref().map_or(query, |e| name_of(place, e));
    say(&s.admin, "SET search_path = pg_catalog").await?;
    if refreshed {
        match different(&s.admin, &format!("TABLE {target}"), &expected).await {
            Ok(0) => {}
            Ok(n) => got.push(format!("the stream table is wrong in {n} rows")),
            Err(e) if a.may_break() => drop(e),
            Err(e) => got.push(format!("the stream table cannot be compared: {e}")),
        }
    }
    // The notes of code that the comparison ran are removed, since the superuser typed the query of the
    // comparison.
    say(&s.admin, "RESET search_path; RESET statement_timeout").await?;
    run_in(place, &s.admin, FORGOTTEN).await;
    drop(t);
    let mut t = operations::open(place, keeping).await;
    got.extend(operations::calm(place, &mut t, &s.admin).await);
    ran(place, &s.admin, got, "another's refresh").await;
    drop(t);
    // The texts that mallory can read at this point are added to the texts that mallory's steps returned.
    secrets(place, &s.mallory, &mut heard).await;
    for line in heard.lines().filter(|l| l.contains("SECRET")) {
        got.push(format!("mallory reads: {}", line.chars().take(200).collect::<String>()));
    }
    Ok(())
}

/// The query of mallory's stream table.
const OWN: &str = "SELECT id, v FROM mallory.m";

/// Makes the objects and sessions of an attempt. Returns None if the server or trickle refuses the catalog
/// because of mallory's early steps.
async fn begin(
    place: &Place,
    a: &Attempt,
    keeping: Keeping,
    got: &mut Vec<String>,
) -> Result<Option<Sessions>, String> {
    let admin = place.session("postgres").await;
    let owner = if a.actor.owns_the_source() { "mallory" } else { "alice" };
    let word = if owner == "alice" { "SECRET" } else { "w" };
    run_in(place, &admin, &WORLD.replace("OWNER", owner).replace("WORD", word)).await;
    if !a.early.is_empty() {
        run_in(place, &admin, "GRANT CREATE ON DATABASE {database} TO mallory").await;
        let mallory = place.session(&role(place, "mallory")).await;
        for step in &a.early {
            run_in(place, &mallory, &step.sql).await;
        }
        let refused = operations::settle(place, keeping).await;
        ran(place, &admin, got, "a catalog's making").await;
        if refused {
            return Ok(None);
        }
    }
    let s = Sessions {
        mallory: place.session(&role(place, "mallory")).await,
        held: place.session(&role(place, "mallory")).await,
        alice: place.session(&role(place, "alice")).await,
        wilma: place.session(&role(place, "wilma")).await,
        admin,
    };
    say(&s.wilma, "SET statement_timeout = '10s'").await?;
    if !matches!(a.actor, Actor::Guest | Actor::Public) {
        run_in(place, &s.admin, "CREATE SCHEMA mallory AUTHORIZATION mallory").await;
        run_in(place, &s.mallory, MALLORY).await;
    }
    let right = match a.actor {
        Actor::Writer => "GRANT INSERT ON shop.t TO mallory",
        Actor::Creator => "GRANT CREATE ON SCHEMA public TO mallory",
        _ => "",
    };
    run_in(place, &s.admin, right).await;
    Ok(Some(s))
}

/// Makes the stream tables, and returns the query of the attacked stream table.
async fn keep(
    place: &Place,
    a: &Attempt,
    keeping: Keeping,
    s: &Sessions,
    t: &mut Driver,
) -> Result<String, String> {
    let through = Driver::is_the_servers();
    if through {
        run_in(place, &s.admin, "SELECT pgtrickle.grant_to('alice')").await;
    }
    if a.actor == Actor::Grantee {
        let table =
            "CREATE TABLE mallory.m (id int PRIMARY KEY, v int); INSERT INTO mallory.m VALUES (1, 1), (2, 2)";
        run_in(place, &s.mallory, table).await;
        if through {
            run_in(place, &s.admin, "SELECT pgtrickle.grant_to('mallory')").await;
            let made = format!("SELECT pgtrickle.create_stream_table('mallory.own', '{OWN}', '1h')");
            run_in(place, &s.mallory, &made).await;
        } else {
            let own = crate::support::name(&name_of(place, "mallory.own"));
            let new = NewStreamTable::new(own, name_of(place, OWN));
            t.create(&new).await.map_err(|e| format!("{e:?}"))?;
            run_in(place, &s.admin, "ALTER TABLE mallory.own OWNER TO mallory").await;
        }
    }
    let default =
        if a.actor == Actor::Reader { "SELECT id, v FROM shop.t" } else { "SELECT id, v, word FROM shop.t" };
    let query = name_of(place, a.query.as_deref().unwrap_or(default));
    t.create(&operations::new("kept", &query, keeping)).await.map_err(|e| format!("{e:?}"))?;
    operations::make_calm(place, t).await;
    if a.actor == Actor::Reader {
        run_in(place, &s.admin, "GRANT SELECT ON kept TO mallory").await;
    }
    Ok(query)
}

/// The attacked stream table, and its mode.
pub(super) struct Kept<'a> {
    pub(super) keeping: Keeping,
    pub(super) target: &'a str,
    pub(super) query: &'a str,
}

/// Statements by which wilma writes in an attempt that names no writes.
const WRITE: &str = "INSERT INTO shop.t (id, v, word) VALUES ({id}, 3, 'w'); UPDATE shop.t SET v = 4 WHERE id = {id}; \
     DELETE FROM shop.t WHERE id = {id} - 1";

/// Does the operations, each of them after some writes. Then does a refresh, and returns whether it
/// succeeded.
async fn operate(
    place: &Place,
    a: &Attempt,
    s: &Sessions,
    t: &mut Driver,
    kept: Kept<'_>,
    operations: &[Operation],
    got: &mut Vec<String>,
) -> bool {
    let told = std::env::var("TRICKLE_ATTEMPT").is_ok();
    let write = a.write.as_deref().unwrap_or(WRITE);
    let writes = [("wilma", &s.wilma, write), ("mallory", &s.mallory, a.own_write.as_deref().unwrap_or("-"))];
    // A lock that an attempt holds is held to the end of the attempt, so the waits are short.
    let held = a.then.iter().any(|step| step.wanted == Wanted::Held);
    let patience = Duration::from_secs(if held { 2 } else { 30 });
    if held {
        // A statement must end soon after the test stops waiting for it.
        let short = "SET statement_timeout = '2s'";
        for session in [&s.admin, t.connection()] {
            run_in(place, session, short).await;
        }
    }
    let mut refreshed = false;
    let mut id = 1000;
    let doing = operations.iter().filter(|o| !(a.named && o.gives()));
    for operation in doing.chain([&Operation::Refresh]) {
        id += 2;
        for (by, session, text) in writes.iter().filter(|(_, _, text)| *text != "-") {
            let text = name_of(place, &text.replace("{id}", &id.to_string()));
            if let Err(e) = say(session, &text).await {
                got.push(format!("{by} cannot write before {operation:?}: {e}"));
            }
            id += 1;
        }
        ran(place, &s.admin, got, &format!("a write before {operation:?}")).await;
        let worked = operations::work(place, t, &s.admin, &kept, *operation);
        let done = tokio::time::timeout(patience, worked).await;
        if told {
            println!("{operation:?}: {done:?}");
        }
        refreshed = matches!(done, Ok(Ok(())));
        match done {
            // An actor that may break the stream table may also block the operations on it.
            Err(_) if !a.may_break() => got.push(format!("{operation:?} waits")),
            Ok(Err(e)) if !a.may_break() || e.starts_with("wrong") => {
                got.push(format!("{operation:?} fails: {e}"));
            }
            _ => {}
        }
        ran(place, &s.admin, got, &format!("{operation:?}")).await;
    }
    refreshed
}

/// Takes a step, and checks that the step succeeds or is refused as the attempt demands.
async fn take(
    place: &Place,
    s: &Sessions,
    step: &Step,
    heard: &mut String,
    got: &mut Vec<String>,
) -> Result<(), String> {
    let session = match (step.by, step.wanted) {
        (By::Mallory, Wanted::Held) => &s.held,
        (By::Mallory, _) => &s.mallory,
        (By::Alice, _) => &s.alice,
        (By::Wilma, _) => &s.wilma,
        (By::Admin, _) => &s.admin,
    };
    let mut sql = name_of(place, &step.sql);
    for (word, table) in [("{source}", "shop.t"), ("{mine}", "mallory.m")] {
        if sql.contains(word) {
            let text = name_of(place, &format!("SELECT '{table}'::regclass::oid::int8"));
            sql = sql.replace(word, &crate::support::count(&s.admin, &text).await.to_string());
        }
    }
    let sql = if step.wanted == Wanted::Held { format!("BEGIN; {sql}") } else { sql };
    let (done, said) = match tell(session, &sql).await {
        Ok(rows) => (None, rows),
        Err((code, said)) => (Some(code), said),
    };
    if step.by == By::Mallory {
        heard.push_str(&said);
        heard.push('\n');
    }
    // A step may name a hidden object that does not exist in this mode. So a missing object is no mistake in
    // the step.
    let there = sql.contains("pgtrickle_changes.");
    let typo = |c: &str| {
        ["42601", "42883", "42703"].contains(&c) || ["42P01", "42704", "3F000"].contains(&c) && !there
    };
    match (step.wanted, done) {
        (Wanted::Refused, None) => got.push(format!("is not refused: {sql}")),
        (Wanted::Refused, Some(code)) if typo(&code) => {
            return Err(format!("{sql}\n        is refused as {said}"));
        }
        (Wanted::Done | Wanted::Held, Some(_)) => return Err(format!("{sql}\n        {said}")),
        _ => {}
    }
    Ok(())
}

/// Adds to `got` the notes of code that ran as a role other than mallory and the writer.
async fn ran(place: &Place, admin: &Session, got: &mut Vec<String>, when: &str) {
    let text = name_of(
        place,
        "WITH gone AS (DELETE FROM public.ran RETURNING *) \
         SELECT coalesce((SELECT string_agg(DISTINCT what || ' as ' || who, ', ') FROM gone WHERE who NOT IN ('mallory', 'wilma')), \
             (SELECT 'what was rolled back ' || string_agg(replace(sequencename, '_', ' '), ', ') FROM pg_sequences \
              WHERE sequencename IN ('as_postgres', 'as_alice') AND last_value IS NOT NULL))",
    );
    let found: Option<String> = admin.client().query_one(&text, &[]).await.unwrap().get(0);
    got.extend(found.map(|f| format!("runs in {when}: {f}")));
    run_in(place, admin, FORGOTTEN).await;
}

/// Statements that remove the notes of mallory's functions.
const FORGOTTEN: &str = "DELETE FROM public.ran; ALTER SEQUENCE public.as_postgres RESTART; ALTER SEQUENCE public.as_alice RESTART";

/// Returns the catalog's rows about stream tables that mallory does not own.
async fn catalog(place: &Place, admin: &Session) -> Vec<String> {
    let text = name_of(
        place,
        "SELECT concat_ws(' ', pgt_id, pgt_relid, pgt_schema, pgt_name, defining_query, original_query, requested_mode, schedule, status) \
         FROM pgtrickle.pgt_stream_tables s JOIN pg_class c ON c.oid = pgt_relid WHERE relowner <> 'mallory'::regrole",
    );
    admin.client().query(&text, &[]).await.unwrap().iter().map(|r| r.get(0)).collect()
}

/// Adds to `heard` all rows that mallory may read, and the results of functions that mallory may call.
async fn secrets(place: &Place, mallory: &Session, heard: &mut String) {
    let _ = say(mallory, "ROLLBACK; RESET ROLE; SET statement_timeout = '10s'").await;
    let readable = "SELECT format('%I.%I', nspname, relname) FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace \
         WHERE relkind IN ('r', 'p', 'v', 'm', 'f') AND nspname NOT IN ('pg_catalog', 'information_schema') \
         AND has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT')";
    let Ok(list) = tell(mallory, readable).await else { return };
    let mut texts: Vec<String> = list
        .lines()
        .map(|r| format!("SELECT '{0}', x::text FROM {0} x WHERE x::text LIKE '%SECRET%'", r.trim()))
        .collect();
    if Driver::is_the_servers() {
        for call in ["pgt_status()", "health_check()", "dependency_tree()", "change_buffer_sizes()"] {
            texts.push(format!("SELECT x::text FROM pgtrickle.{call} x"));
        }
        for name in ["public.kept", "alice.calm"] {
            for call in ["get_refresh_history", "explain_st", "explain_delta", "explain_refresh_mode"] {
                texts.push(name_of(place, &format!("SELECT x::text FROM pgtrickle.{call}('{name}') x")));
            }
        }
    }
    for text in texts {
        match tell(mallory, &text).await {
            Ok(rows) => heard.push_str(&rows),
            Err((_, said)) => heard.push_str(&said),
        }
        heard.push('\n');
    }
}
