//! Tests of the machine against a scripted server that tracks whether a transaction is open or aborted.

use super::*;
use crate::cost::{Force, Policy, Strategy};
use crate::expr::Moment;
use crate::frontier::Frontier;
use crate::table::{TableId, TableKind};

/// A program whose statements name the program, the strategy and the windows.
#[derive(Debug)]
struct Fake {
    name: &'static str,
    feed: ReaderView,
    timed: bool,
}

impl Program for Fake {
    fn strategies(&self) -> &[Strategy] {
        &[Strategy::Delta, Strategy::Full]
    }
    fn statements(&self, strategy: Strategy, windows: &Windows) -> crate::Result<Arc<[Template]>> {
        let changed = |(id, expected): (&TableId, &Option<i64>)| match expected {
            Some(n) => format!("{id}~{n}"),
            None => id.to_string(),
        };
        let changed: Vec<String> = windows.iter().map(changed).collect();
        let text = format!("{strategy} {} {}", self.name, changed.join(","));
        let first = Template::plain("prepare", Effect::Nothing);
        let binds: Arc<[Bind]> = Arc::new([
            Bind::FrontierSnapshot,
            Bind::FrontierXid,
            Bind::FrontierCommand,
            Bind::Value(Value::Bool(true)),
            Bind::Clock(Moment::Then),
            Bind::Clock(Moment::Now),
        ]);
        let result = if strategy == Strategy::Delta { Effect::Counts } else { Effect::Inserted };
        Ok(Arc::new([first, Template { text: text.into(), binds, result }]))
    }
    fn reads_clock(&self) -> bool {
        self.timed
    }
    fn feed(&self, strategy: Strategy) -> ReaderView {
        if strategy == Strategy::Full { self.feed } else { ReaderView::Changes }
    }
}

fn relation(id: u32, name: &str) -> Relation {
    Relation { id: TableId(id), schema: "public".into(), name: name.into() }
}

fn source(id: u32, name: &str, kind: TableKind) -> Source {
    let changes =
        Relation { schema: "pgtrickle_changes".into(), ..relation(id + 1000, &format!("changes_{id}")) };
    Source {
        relation: relation(id, name),
        kind,
        changes: Some(changes),
        partitioned: false,
        uncaptured: None,
    }
}

fn member(id: i64, name: &'static str, relid: u32, sources: Vec<Source>) -> Member {
    Member {
        id,
        relation: relation(relid, name),
        sources,
        program: Arc::new(Fake { name, feed: ReaderView::Replaced, timed: false }),
        policy: Policy::default(),
        definition: None,
        polled: true,
        unseen: None,
        part: None,
        lock: Lock::default(),
        kept_by: None,
        settings: vec![
            Setting { name: "TimeZone".into(), values: vec!["UTC".into()] },
            Setting { name: "search_path".into(), values: vec!["a".into(), "B c".into()] },
        ],
    }
}

/// Makes a plan in which `up` reads base table 1, and `down` reads `up` (20) and base table 2.
fn plan() -> Plan {
    Plan {
        members: vec![
            member(7, "up", 20, vec![source(1, "orders", TableKind::Table)]),
            member(
                8,
                "down",
                10,
                vec![source(20, "up", TableKind::StreamTable), source(2, "o'dd\"name", TableKind::Table)],
            ),
        ],
        transaction: Transaction::Own { lock_timeout_ms: 500, statement_timeout_ms: None, attempts: 3 },
        request: Request::default(),
        work_mem: None,
        asked_at: None,
    }
}

const FRONTIER: &str = r#"{"own":{},"system":"1","database":5,"snapshot":"90:90:"}"#;

const THEN: &str = "2025-01-31 12:00:00.000000+00";
const NOW: &str = "2025-01-31 12:00:01.500000+00";

/// Makes a row of the decision query.
fn fact(id: i64, source: i64, pending: Option<i64>) -> Vec<Value> {
    let int = Value::Int8;
    vec![
        Value::text("100:105:102"),
        Value::text("105"),
        int(1),
        int(5),
        int(id),
        Value::text(FRONTIER),
        Value::Null,
        int(1000),
        Value::Bool(false),
        Value::Bool(true),
        int(source),
        Value::Bool(true),
        int(100_000),
        pending.map_or(Value::Null, int),
        Value::Null,
        Value::Null,
        Value::text(NOW),
        Value::text(THEN),
        Value::Null,
    ]
}

/// Makes the decision query's rows from the numbers of pending rows of `orders`, `up` and the other base
/// table.
fn facts(orders: i64, up: i64, other: i64) -> Vec<Vec<Value>> {
    vec![fact(7, 1, Some(orders)), fact(8, 20, Some(up)), fact(8, 2, Some(other))]
}

/// Whether a scripted error applies to a statement.
type Fits = Box<dyn Fn(&Statement) -> bool>;

struct Server {
    facts: Vec<Vec<Value>>,
    errors: Vec<(Fits, &'static str)>,
    log: Vec<Statement>,
    open: bool,
    aborted: bool,
    savepoint: bool,
    committed: Vec<String>,
}

impl Server {
    fn new(facts: Vec<Vec<Value>>) -> Server {
        let (open, aborted, savepoint) = (false, false, false);
        Server { facts, errors: vec![], log: vec![], open, aborted, savepoint, committed: vec![] }
    }
    /// Makes the first statement that satisfies the condition `on` fail, once.
    fn fails(mut self, on: impl Fn(&Statement) -> bool + 'static, sqlstate: &'static str) -> Server {
        self.errors.push((Box::new(on), sqlstate));
        self
    }

    fn run(&mut self, s: &Statement) -> std::result::Result<Answer, ServerError> {
        self.log.push(s.clone());
        if let Some(i) = self.errors.iter().position(|(on, _)| on(s)) {
            let (_, sqlstate) = self.errors.remove(i);
            self.aborted = self.open;
            return Err(ServerError::new(sqlstate, "scripted"));
        }
        let ends = matches!(s.kind, Kind::Rollback | Kind::RollbackTo);
        assert!(!self.aborted || ends, "{} in an aborted transaction", s.text);
        // PostgreSQL answers ROLLBACK outside a transaction by a warning, not an error.
        assert!(
            s.kind == Kind::Rollback || (s.kind != Kind::Begin) == self.open,
            "{} while open = {}",
            s.text,
            self.open
        );
        match s.kind {
            Kind::Begin => self.open = true,
            Kind::Commit | Kind::Rollback => {
                (self.open, self.aborted, self.savepoint) = (false, false, false);
                if s.kind == Kind::Commit {
                    self.committed = self.log.iter().map(|s| s.text.to_string()).collect();
                }
            }
            Kind::Savepoint => self.savepoint = true,
            Kind::Release | Kind::RollbackTo => {
                assert!(self.savepoint);
                self.savepoint = s.kind == Kind::RollbackTo;
                self.aborted = false;
            }
            _ => {}
        }
        let mut answer = Answer { affected: 4, micros: 10, ..Answer::default() };
        if s.kind == Kind::Decide {
            answer.rows = self.facts.clone();
        } else if s.fetch {
            answer.rows = vec![vec![Value::Int8(1), Value::Int8(2), Value::Int8(3)]];
        }
        Ok(answer)
    }

    /// Drives a machine to its end.
    fn drive(&mut self, plan: Plan) -> Step {
        let mut machine = Machine::new(plan);
        let mut outcome = Outcome::start();
        loop {
            let batch = match machine.step(outcome) {
                Step::Run(batch) => batch,
                end => {
                    assert!(matches!(machine.step(Outcome::start()), Step::Fail(_)));
                    return end;
                }
            };
            let (last, rest) = batch.split_last().unwrap();
            assert!(!last.pipeline && rest.iter().all(|s| s.pipeline));
            outcome = Outcome { generate_micros: 1, ..Outcome::default() };
            for s in &batch {
                match self.run(s) {
                    Ok(a) => outcome.answers.push(a),
                    Err(e) => {
                        outcome.error = Some(e);
                        break;
                    }
                }
            }
        }
    }
    fn texts(&self) -> Vec<&str> {
        self.log.iter().map(|s| &*s.text).collect()
    }
    /// Returns kinds and program texts, without settings, locks and preparations.
    fn short(&self) -> Vec<String> {
        self.log
            .iter()
            .filter(|s| !matches!(s.kind, Kind::Setting | Kind::Lock) && &*s.text != "prepare")
            .map(|s| if s.kind == Kind::Program { s.text.to_string() } else { format!("{:?}", s.kind) })
            .collect()
    }
}

fn report(step: Step) -> Report {
    match step {
        Step::Done(r) => r,
        other => panic!("{other:?}"),
    }
}
fn failure(step: Step) -> Failure {
    match step {
        Step::Fail(f) => f,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_was_never_filled_is_kept_from_writers_too() {
    let mut server = Server::new(facts(5, 0, 0));
    let mut plan = plan();
    plan.members[0].lock = Lock::Writers;
    report(server.drive(plan));
    let locks: Vec<&str> = server.texts().into_iter().filter(|t| t.contains("EXCLUSIVE MODE")).collect();
    assert_eq!(
        locks,
        [
            "LOCK TABLE public.down IN SHARE UPDATE EXCLUSIVE MODE",
            "LOCK TABLE public.up IN SHARE ROW EXCLUSIVE MODE",
        ]
    );
}

#[test]
fn upstream_first_over_one_snapshot() {
    let mut server = Server::new(facts(5, 0, 0));
    let r = report(server.drive(plan()));
    assert_eq!(
        server.texts()[..7],
        [
            "BEGIN ISOLATION LEVEL REPEATABLE READ",
            "SET LOCAL lock_timeout = '500ms'",
            "SET LOCAL idle_in_transaction_session_timeout = '10000ms'",
            "SET LOCAL jit = 'off'",
            "SET LOCAL pgtrickle.refreshing = 'on'",
            "LOCK TABLE public.orders, public.\"o'dd\"\"name\" IN ACCESS SHARE MODE",
            "LOCK TABLE public.down, public.up IN SHARE UPDATE EXCLUSIVE MODE",
        ]
    );
    // Both members have the same settings, so the settings are put in force once.
    let settings: Vec<&str> = server.texts().into_iter().filter(|t| t.starts_with("SET LOCAL")).collect();
    // The best plan of these statements depends on the bound time, so they are planned each time. The
    // statements at the end of the refresh are planned once.
    let own = [
        "SET LOCAL \"TimeZone\" = 'UTC'",
        "SET LOCAL search_path = 'a', 'B c', 'pg_temp'",
        "SET LOCAL plan_cache_mode = 'force_custom_plan'",
        "SET LOCAL plan_cache_mode = 'force_generic_plan'",
    ];
    assert_eq!(settings[4..], own);
    assert_eq!(
        server.short(),
        [
            "Begin",
            "Decide",
            "Savepoint",
            "delta up 1~8",
            "Release",
            "Savepoint",
            // `up` inserted one row, updated two and deleted three. This makes 8 change rows for `down`.
            "delta down 20~8",
            "Release",
            "Frontier",
            "History",
            "Commit"
        ]
    );
    // The frontier counts the whole transaction 105, which is the refresh's own. Transaction 102 was still
    // running.
    let f = r.frontier.unwrap();
    assert_eq!(f.snapshot().to_string(), "102:106:102");
    let store = server.log.iter().find(|s| s.kind == Kind::Frontier).unwrap();
    assert_eq!(store.params[0], Value::text(f.to_json().unwrap()));
    let models: serde_json::Value = serde_json::from_str(store.params[1].as_text().unwrap()).unwrap();
    let learnt = |m: &serde_json::Value| (m["id"].as_i64(), m["model"]["evidence"]["delta"].is_object());
    assert_eq!(
        models.as_array().unwrap().iter().map(learnt).collect::<Vec<_>>(),
        [(Some(7), true), (Some(8), true)]
    );
    let delta = server.log.iter().find(|s| &*s.text == "delta up 1~8").unwrap();
    assert_eq!(delta.params[..4], [Value::text("90:90:"), Value::Null, Value::Null, Value::Bool(true)]);
    let up = &r.members[0];
    assert_eq!(
        (up.action, up.rows_inserted, up.rows_updated, up.rows_deleted, up.delta_rows),
        (Action::Differential, 1, 2, 3, 5)
    );
    // The changes that `up` wrote (1 + 3 + 2·2 row images) are the delta that `down` reads.
    assert_eq!(r.members[1].delta_rows, 8);
    assert_eq!((up.phases.execute, r.attempts), (70, 1));
    let steps: Vec<usize> = server.log.iter().map(|s| s.step).collect();
    assert_eq!(steps, (0..server.log.len()).collect::<Vec<_>>());
}

#[test]
fn a_refresh_that_meets_a_partition_begins_anew() {
    let mut plan = plan();
    plan.members[1].sources[1].partitioned = true;
    let mut server = Server::new(facts(5, 0, 0)).fails(|s| s.kind == Kind::Partitions, "40001");
    let r = report(server.drive(plan));
    assert_eq!(r.attempts, 2);
    let ends: Vec<String> = server.short().into_iter().filter(|k| !k.starts_with("delta")).collect();
    let members = ["Savepoint", "Release", "Savepoint", "Release"];
    let first = ["Begin", "Decide"].into_iter().chain(members).chain(["Partitions", "Rollback"]);
    let second =
        ["Begin", "Decide"].into_iter().chain(members).chain(["Partitions", "Frontier", "History", "Commit"]);
    assert_eq!(ends, first.chain(second).collect::<Vec<_>>());
    assert!(server.texts().contains(&"SELECT pgtrickle.require_sources('{2}')"));
}

/// Returns, for each member, the commit time that is written into history for the member's changes.
fn committed(server: &Server) -> Vec<Option<String>> {
    let history = server.log.iter().find(|s| s.kind == Kind::History).unwrap();
    let rows: serde_json::Value = serde_json::from_str(history.params[0].as_text().unwrap()).unwrap();
    rows.as_array().unwrap().iter().map(|r| r["committed"].as_str().map(str::to_owned)).collect()
}

#[test]
fn the_first_commit_is_told_where_it_is_known_of_every_change() {
    let (early, late) = ("2025-01-31 12:00:00.250000+00", "2025-01-31 12:00:01.000000+00");
    let of = |up: [Option<&str>; 2], waiting: i64, other: Option<&str>| {
        let mut rows = vec![
            fact(7, 1, Some(5)),
            fact(8, 20, Some(waiting)),
            fact(8, 2, Some(i64::from(other.is_some()))),
        ];
        for (row, time) in rows.iter_mut().zip([up[0], up[1], other]) {
            row[15] = time.map_or(Value::Null, Value::text);
        }
        let mut server = Server::new(rows);
        report(server.drive(plan()));
        committed(&server)
    };
    let some = |t: &str| Some(t.to_owned());
    // `down` reads from `up` a change that `up` derived from a source's change. The commit time of the change
    // in `up` is the commit time of the source's change.
    assert_eq!(of([Some(early), None], 0, None), [some(early), some(early)]);
    assert_eq!(of([Some(late), None], 0, Some(early)), [some(late), some(early)]);
    assert_eq!(of([Some(early), None], 0, Some(late)), [some(early), some(early)]);
    assert_eq!(of([None, None], 0, Some(late)), [None, None]);
    // Changes that an earlier refresh of `up` left pending were committed before this refresh, at an unknown
    // time.
    assert_eq!(of([Some(early), None], 3, Some(late)), [some(early), None]);
}

#[test]
fn an_empty_window_stores_nothing_unless_asked() {
    let mut server = Server::new(facts(0, 0, 0));
    let r = report(server.drive(plan()));
    assert_eq!(server.short(), ["Begin", "Decide", "Commit"]);
    assert!(r.frontier.is_none() && r.members.iter().all(|m| m.action == Action::NoData));
    let mut server = Server::new(facts(0, 0, 0));
    let mut asked = plan();
    asked.request.store_empty = true;
    assert!(report(server.drive(asked)).frontier.is_some());
    assert_eq!(server.short(), ["Begin", "Decide", "Frontier", "Commit"]);
    assert!(server.log.iter().any(|s| &*s.text == "SET LOCAL synchronous_commit = 'off'"));
}

#[test]
fn a_data_error_of_the_delta_recomputes_in_the_same_run() {
    let mut server = Server::new(facts(5, 0, 0)).fails(|s| s.text.starts_with("delta up"), "22012");
    let r = report(server.drive(plan()));
    // A replaced source leaves no delta, so its reader recomputes too.
    assert_eq!(
        server.short(),
        [
            "Begin",
            "Decide",
            "Savepoint",
            "delta up 1~8",
            "RollbackTo",
            "Release",
            "full up 1",
            "full down 2,20",
            "Frontier",
            "History",
            "Commit"
        ]
    );
    assert_eq!((r.members[0].action, r.members[0].rows_inserted), (Action::Full, 4));
    assert_eq!(r.members[0].reason, "the delta met an error (22012: scripted)");
    assert_eq!(r.members[1].reason, "public.up was truncated or replaced");
    // If the query itself raises an error, this error is the failure of the refresh.
    let mut server = Server::new(facts(5, 0, 0))
        .fails(|s| s.text.starts_with("delta up"), "22012")
        .fails(|s| s.text.starts_with("full up"), "22003");
    let f = failure(server.drive(plan()));
    assert_eq!((f.kind, f.member, f.error.sqlstate()), (FailureKind::Statement, Some(7), Some("22003")));
    assert_eq!(server.short().last().unwrap(), "Rollback");
}

#[test]
fn conflicts_start_again_a_bounded_number_of_times() {
    for sqlstate in ["40001", "40P01"] {
        let mut server = Server::new(facts(5, 0, 0)).fails(|s| s.text.starts_with("delta down"), sqlstate);
        let r = report(server.drive(plan()));
        assert_eq!((r.attempts, r.members.len()), (2, 2));
        assert_eq!(server.short().iter().filter(|s| *s == "Begin").count(), 2);
    }
    let mut server = Server::new(facts(5, 0, 0));
    for _ in 0..9 {
        server = server.fails(|s| s.kind == Kind::Commit, "40001");
    }
    let f = failure(server.drive(plan()));
    assert_eq!((f.kind, f.attempts), (FailureKind::Conflict, 3));
}

#[test]
fn a_failure_at_any_step_ends_in_rollback() {
    for orders in [0, 5] {
        let mut healthy = Server::new(facts(orders, 0, 3));
        let _ = report(healthy.drive(plan()));
        for step in 0..healthy.log.len() {
            for (sqlstate, kind) in [
                ("42501", FailureKind::Statement),
                ("55P03", FailureKind::Busy),
                ("08006", FailureKind::Connection),
            ] {
                let mut server = Server::new(facts(orders, 0, 3)).fails(move |s| s.step == step, sqlstate);
                let f = failure(server.drive(plan()));
                assert_eq!((f.kind, f.step), (kind, step));
                assert_eq!(server.log.last().unwrap().kind, Kind::Rollback);
                assert!(!server.open && server.committed.is_empty());
            }
            // The failure is the same where the ROLLBACK fails too.
            let mut server = Server::new(facts(orders, 0, 3)).fails(move |s| s.step == step, "08006");
            server = server.fails(|s| s.kind == Kind::Rollback, "08003");
            assert_eq!(failure(server.drive(plan())).error.sqlstate(), Some("08006"));
        }
    }
}

#[test]
fn truncated_uncaptured_foreign_and_unfilled_are_recomputed() {
    let run = |change: &dyn Fn(&mut Vec<Value>), full: bool| {
        let mut rows = facts(0, 0, 0);
        change(&mut rows[0]);
        let mut p = plan();
        p.request.full = full;
        report(Server::new(rows).drive(p)).members[0].clone()
    };
    let m = run(&|row| row[14] = Value::Bool(false), false);
    assert_eq!((m.action, &*m.reason), (Action::Full, "public.orders was truncated or replaced"));
    let m = run(&|row| row[14] = Value::Bool(true), false);
    assert_eq!(&*m.reason, "public.orders was changed more than its buffer may hold");
    let m = run(&|row| row[13] = Value::Null, false);
    assert_eq!((m.action, &*m.reason), (Action::Full, "changes of public.orders are not captured"));
    let m = run(&|row| row[2] = Value::Int8(2), false);
    assert_eq!(m.action, Action::Reinitialize);
    assert!(m.reason.starts_with("its frontier is of another system"));
    let m = run(&|row| row[3] = Value::Int8(6), false);
    assert_eq!(m.action, Action::Reinitialize);
    let m = run(&|row| row[5] = Value::Null, false);
    assert_eq!((m.action, &*m.reason), (Action::Reinitialize, "it has no frontier yet"));
    let ahead = FRONTIER.replace("90:90:", "99:103:");
    let m = run(&|row| row[5] = Value::text(&ahead), false);
    assert_eq!(&*m.reason, "its frontier is ahead of the database (restored to an earlier state)");
    let m = run(&|row| row[6] = Value::text("it was marked"), false);
    assert_eq!((m.action, &*m.reason), (Action::Reinitialize, "it was marked"));
    let m = run(&|_| {}, true);
    assert_eq!((m.action, &*m.reason), (Action::Full, "a full refresh was asked for"));
}

/// A program that can recompute a part.
#[derive(Debug)]
struct InPart(Fake);

impl Program for InPart {
    fn strategies(&self) -> &[Strategy] {
        self.0.strategies()
    }
    fn statements(&self, strategy: Strategy, windows: &Windows) -> crate::Result<Arc<[Template]>> {
        self.0.statements(strategy, windows)
    }
    fn takes_part(&self) -> bool {
        true
    }
    fn feed(&self, strategy: Strategy) -> ReaderView {
        self.0.feed(strategy)
    }
}

#[test]
fn a_part_is_recomputed_even_if_nothing_changed() {
    let partly = |possible: bool| {
        let mut p = plan();
        p.members[0].part = Some("partitions of orders came or went".into());
        if possible {
            p.members[0].program =
                Arc::new(InPart(Fake { name: "up", feed: ReaderView::Replaced, timed: false }));
        }
        p
    };
    let forgets = |s: &Server| s.log.iter().filter(|s| s.text.contains("SET stayed = NULL")).count();
    let mut server = Server::new(facts(0, 0, 0));
    let m = report(server.drive(partly(true))).members[0].clone();
    assert_eq!((m.action, m.strategy), (Action::Reinitialize, Strategy::Part));
    assert_eq!((&*m.reason, forgets(&server)), ("partitions of orders came or went", 1));
    let mut server = Server::new(facts(0, 0, 0));
    let m = report(server.drive(partly(false))).members[0].clone();
    assert_eq!((m.action, m.strategy), (Action::Reinitialize, Strategy::Full));
    assert_eq!((&*m.reason, forgets(&server)), ("partitions of orders came or went", 1));
    // The whole query is recomputed if the recompute of the part fails with a data error, or if there is
    // another reason for a recompute.
    let mut server = Server::new(facts(0, 0, 0)).fails(|s| s.text.starts_with("part up"), "22012");
    let m = report(server.drive(partly(true))).members[0].clone();
    assert_eq!((m.strategy, forgets(&server)), (Strategy::Full, 1));
    let mut rows = facts(0, 0, 0);
    rows[0][14] = Value::Bool(false);
    let mut server = Server::new(rows);
    let m = report(server.drive(partly(true))).members[0].clone();
    assert_eq!((&*m.reason, m.strategy), ("public.orders was truncated or replaced", Strategy::Full));
    assert_eq!(forgets(&server), 1);
    let mut server = Server::new(facts(5, 0, 0));
    report(server.drive(plan()));
    assert_eq!(forgets(&server), 0);
}

#[test]
fn what_reads_the_clock_is_refreshed_by_a_delta_of_the_time() {
    let timed = || {
        let mut p = plan();
        p.members[1].program = Arc::new(Fake { name: "down", feed: ReaderView::Replaced, timed: true });
        p.members[1].polled = false;
        p
    };
    let reader = timed();
    let text = super::control::glance_text(&[Reader::from(&reader.members[1])]);
    assert!(text.contains("t.pgt_id = ANY ('{8}'::int8[]) OR"), "the cheap question knows it too");
    let mut server = Server::new(facts(0, 0, 0));
    let done = report(server.drive(timed()));
    assert_eq!((done.members[0].action, done.members[1].action), (Action::NoData, Action::Differential));
    let delta = server.log.iter().find(|s| s.text.starts_with("delta down")).unwrap();
    assert_eq!(&*delta.text, "delta down 0");
    assert_eq!(delta.params[4..], [Value::text(THEN), Value::text(NOW)]);
    // A second refresh at the same time does nothing.
    let mut still = facts(0, 0, 0);
    still.iter_mut().for_each(|row| row[17] = row[16].clone());
    assert_eq!(report(Server::new(still).drive(timed())).members[1].action, Action::NoData);
    let mut unknown = facts(0, 0, 0);
    unknown.iter_mut().for_each(|row| row[17] = Value::Null);
    assert_eq!(report(Server::new(unknown).drive(timed())).members[1].action, Action::Reinitialize);
}

#[test]
fn a_clock_reader_is_recomputed_only_when_polled() {
    for polled in [true, false] {
        let mut p = plan();
        for m in &mut p.members {
            (m.unseen, m.polled) = (Some("the clock goes on".into()), polled);
        }
        p.members[1].relation.name = "Odd name".into();
        let reader = Reader::from(&p.members[0]);
        let always = super::control::glance_text(&[reader]).contains("t.pgt_id = ANY ('{7}'::int8[]) OR");
        assert_eq!(always, polled, "the cheap question knows it too");
        let m = report(Server::new(facts(0, 0, 0)).drive(p)).members[1].clone();
        assert_eq!(m.name, "public.\"Odd name\"");
        let expected = if polled { Action::Full } else { Action::NoData };
        assert_eq!((m.action, m.reason == "the clock goes on"), (expected, polled));
    }
}

#[test]
fn work_mem_is_set_locally_for_each_member_by_its_size() {
    let mut p = plan();
    p.work_mem = WorkMem::between(Some(2), Some(64));
    let incremental = Policy { force: Some(Force::Incremental), ..Policy::default() };
    p.members.iter_mut().for_each(|m| m.policy = incremental);
    let mut server = Server::new(facts(5 << 10, 1, 0));
    report(server.drive(p));
    let set = server.log.iter().filter(|s| s.text.contains("work_mem"));
    let set: Vec<_> = set.map(|s| (s.member.unwrap(), s.text.to_string())).collect();
    let local = |mb: u32| format!("SET LOCAL work_mem = '{mb}MB'");
    assert_eq!(set, [(7, local(5)), (8, local(2))]);
}

/// The query of [`super::control::peek_text`] contains one look into each buffer, however many frontiers
/// there are. A binary search finds the buffer.
#[test]
fn the_second_question_grows_linearly_with_the_sources() {
    let text = |n: u32| {
        let one = |i: u32| member(i64::from(i), "st", 5000 + i, vec![source(i, "s", TableKind::Table)]);
        let members: Vec<Member> = (1..=n).map(one).collect();
        let readers: Vec<Reader<'_>> = members.iter().map(Reader::from).collect();
        super::control::peek_text(&readers)
    };
    for n in [1, 2, 7, 64] {
        let text = text(n);
        for i in 1..=n {
            assert_eq!(text.matches(&format!("changes_{i} b ")).count(), 1, "{text}");
        }
        assert_eq!(text.matches("CASE WHEN f.source <").count() + 1, n as usize);
        assert_eq!(text.matches("FROM frontiers f").count(), 1, "{text}");
    }
    // The condition of the last of 64 sources is nested in six CASEs, and contains one CASE itself.
    assert_eq!(text(64).rsplit("EXISTS").next().unwrap().matches(" END").count(), 6 + 1);
}

#[test]
fn tables_that_are_not_what_was_planned_stop_the_run() {
    for column in [9, 11] {
        let mut rows = facts(5, 0, 0);
        rows[1][column] = Value::Bool(false);
        assert_eq!(failure(Server::new(rows).drive(plan())).kind, FailureKind::Stale);
    }
    let gone = vec![fact(7, 1, Some(5))];
    let mut server = Server::new(gone);
    assert_eq!(failure(server.drive(plan())).kind, FailureKind::Stale);
    assert_eq!(server.short(), ["Begin", "Decide", "Rollback"]);
    for rows in [vec![vec![]], vec![vec![Value::Null; 14]]] {
        assert_eq!(failure(Server::new(rows).drive(plan())).error.sqlstate(), Some("XX000"));
    }
}

#[test]
fn within_a_callers_transaction_nothing_is_begun_or_ended() {
    let callers =
        || Plan { transaction: Transaction::Callers { command: "SELECT 9".into(), fresh: true }, ..plan() };
    let mut server = Server::new(facts(5, 0, 0));
    server.open = true;
    let f: Frontier = report(server.drive(callers())).frontier.unwrap();
    assert_eq!(server.short().first().unwrap(), "Decide");
    assert_eq!(server.short()[7..], ["Command", "Partitions", "Frontier", "History"]);
    assert_eq!(f.partial().collect::<Vec<_>>(), [(105, 1)]);
    let mut server = Server::new(facts(5, 0, 0)).fails(|s| s.text.starts_with("delta up"), "22012");
    server.open = true;
    assert_eq!(report(server.drive(callers())).members[0].action, Action::Full);
    let mut server = Server::new(facts(5, 0, 0)).fails(|s| s.text.starts_with("delta up"), "40001");
    server.open = true;
    assert_eq!(failure(server.drive(callers())).kind, FailureKind::Conflict);
    assert!(server.short().iter().all(|s| s != "Rollback"));
    let old =
        Plan { transaction: Transaction::Callers { command: "SELECT 9".into(), fresh: false }, ..plan() };
    let mut rows = facts(5, 0, 0);
    rows.iter_mut().for_each(|r| r[6] = Value::text("it was never filled"));
    let mut server = Server::new(rows);
    server.open = true;
    assert_eq!(failure(server.drive(old)).error.sqlstate(), Some("40001"));
    let mut rows = facts(5, 0, 0);
    rows[0][5] = Value::text(FRONTIER.replace("90:90:", "99:103:"));
    let mut server = Server::new(rows);
    server.open = true;
    assert_eq!(failure(server.drive(callers())).error.sqlstate(), Some("40001"));
}

#[test]
fn traces_serialise_and_equal_answers_give_equal_statements() {
    let (mut a, mut b) = (Server::new(facts(5, 0, 2)), Server::new(facts(5, 0, 2)));
    assert_eq!(report(a.drive(plan())), report(b.drive(plan())));
    let trace = serde_json::to_string(&a.log).unwrap();
    assert_eq!(serde_json::from_str::<Vec<Statement>>(&trace).unwrap(), b.log);
}
