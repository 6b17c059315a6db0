//! The catalogue: stream tables of each function, operator, cast, aggregate and type of PostgreSQL's own. The
//! stream tables read a table with NULLs, and are refreshed over several windows of changes. The tests catch
//! a name that the engine and the server resolve, type or compute differently. The tests also catch a
//! construct that the engine refuses without need.
//!
//! `just catalogue` tests all subjects, which takes more than an hour. `./x test` tests one part, a different
//! one each day.

mod samples;
mod subjects;

use crate::server_types::columns;
use crate::support::{
    Db, Driver, difference, is_of_today, mode, name, newest_server, open, run, todays_server, try_refresh,
};
use std::collections::BTreeMap;
use std::fmt::Write;
use subjects::Subject;
use trickle_client::{NewStreamTable, Session};

/// The number of stream tables that exist at a time.
const BATCH: usize = 60;

/// The number of parts of the catalogue, of which one is tested each day. A part takes about half a minute on
/// an idle machine.
const PARTS: u64 = 76;

/// The result of the stream table of a subject.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    /// The stream table is updated by deltas, and is right.
    Deltas,
    /// Each refresh recomputes the stream table, for this reason.
    Recomputed(String),
    /// The stream table is refused, for this reason.
    Refused(String),
    /// The query has a different value in each transaction.
    Unrepeatable,
    /// The query raises an error with all samples of arguments.
    Raises,
    /// The stream table has a wrong row or a wrong type, or a refresh fails.
    Wrong(String),
}

/// Calls whose values belong to the transaction of the call. A refresh calls them in a transaction of its
/// own.
const OF_A_TRANSACTION: &[&str] = &["txid_current_if_assigned", "pg_current_xact_id_if_assigned"];

/// Whether this run tests the nth subject. `TRICKLE_CATALOGUE` is `all`, a part of the list such as `3/60`,
/// or a part of the names of subjects.
fn is_meant(nth: usize, subject: &Subject) -> bool {
    let asked = std::env::var("TRICKLE_CATALOGUE").unwrap_or_else(|_| "all".to_owned());
    let number = |text: &str| text.parse::<usize>().ok();
    let part = asked.split_once('/').and_then(|(part, of)| Some((number(part)?, number(of)?.max(1))));
    match part {
        Some((part, of)) => nth % of == part % of,
        None => asked == "all" || subject.name.contains(&asked),
    }
}

#[test]
#[ignore = "takes more than an hour: just catalogue"]
fn the_catalogue_is_kept_as_the_server_computes_it() {
    newest_server(async |db| play(db, is_meant).await);
}

#[test]
fn a_part_of_the_catalogue_is_kept_as_the_server_computes_it() {
    todays_server(async |db| play(db, |nth, _| is_of_today(nth, PARTS)).await);
}

/// Keeps a stream table of each subject that is meant, and asserts that none is wrong.
async fn play(db: &Db, is_meant: impl Fn(usize, &Subject) -> bool) {
    let (s, other) = (db.session().await, db.session().await);
    let has_xml = s.client().batch_execute("SELECT '<a/>'::xml").await.is_ok();
    run(&s, &samples::tables(has_xml)).await;
    run(&s, "CREATE SCHEMA states; CREATE VIEW states.c AS TABLE public.every").await;
    run(&s, "SET statement_timeout = '10s'").await;
    let all = subjects::all(&s).await;
    println!("PostgreSQL {}: {} subjects", db.major(), all.len());
    let subjects = all.into_iter().enumerate();
    let meant: Vec<Subject> =
        subjects.filter(|(nth, subject)| is_meant(*nth, subject)).map(|(_, subject)| subject).collect();
    assert!(!meant.is_empty(), "no subject has such a name");
    let mut t = open(db).await;
    let mut outcomes = Vec::new();
    for batch in meant.chunks(BATCH) {
        outcomes.extend(batch.iter().cloned().zip(batch_of(&mut t, &s, &other, batch).await));
        println!("{} of {} subjects", outcomes.len(), meant.len());
    }
    let text = report(&outcomes);
    println!("{text}");
    let is_wrong = |o: &&(Subject, Outcome)| matches!(o.1, Outcome::Wrong(_));
    assert_eq!(outcomes.iter().filter(is_wrong).count(), 0, "{text}");
}

/// Makes a stream table of each subject of a batch, refreshes it over all windows, and returns the outcomes.
async fn batch_of(t: &mut Driver, s: &Session, other: &Session, batch: &[Subject]) -> Vec<Outcome> {
    let mut outcomes = vec![Outcome::Raises; batch.len()];
    let mut kept = Vec::new();
    for (nth, subject) in batch.iter().enumerate() {
        let Some(query) = runs(s, subject).await else { continue };
        let what = format!("st{nth}");
        outcomes[nth] = match t.create(&NewStreamTable::new(name(&what), query)).await {
            Err(e) => Outcome::Refused(e.to_string()),
            Ok(_) => {
                kept.push((nth, what.clone(), query));
                made(t, s, other, &what, query).await
            }
        };
    }
    for window in samples::windows() {
        run(s, &window).await;
        for (nth, what, query) in &kept {
            if let Some(wrong) = differs(t, s, what, query, &outcomes[*nth]).await {
                outcomes[*nth] = Outcome::Wrong(wrong);
            }
        }
    }
    for (_, what, _) in &kept {
        t.drop(&name(what), false).await.unwrap();
    }
    run(s, "TRUNCATE c; INSERT INTO c SELECT * FROM every WHERE state = 0").await;
    outcomes
}

/// Returns the outcome of a stream table that was just made.
async fn made(t: &mut Driver, s: &Session, other: &Session, what: &str, query: &str) -> Outcome {
    if let Some(wrong) = types_differ(s, what, query).await {
        return Outcome::Wrong(wrong);
    }
    let (found, reason) = mode(t, what).await;
    let deltas = found == "DIFFERENTIAL";
    let repeats = repeats(s, other, query).await && !OF_A_TRANSACTION.iter().any(|f| query.contains(f));
    match (repeats, deltas) {
        (true, true) => Outcome::Deltas,
        (true, false) => Outcome::Recomputed(reason),
        (false, true) if !t.find(&name(what)).await.unwrap().reads_clock => {
            Outcome::Wrong(format!("{query}\n    has other values later, and is kept by deltas"))
        }
        (false, _) => Outcome::Unrepeatable,
    }
}

/// Returns the first query of a subject that raises no error over the rows of all states.
async fn runs<'q>(s: &Session, subject: &'q Subject) -> Option<&'q str> {
    run(s, "SET search_path = states, public").await;
    let mut found = None;
    for query in &subject.queries {
        if s.client().query_one(&format!("SELECT count(q::text) FROM ({query}) q"), &[]).await.is_ok() {
            found = Some(query.as_str());
            break;
        }
    }
    run(s, "RESET search_path").await;
    found
}

/// Whether the query has the same rows in a later transaction of another session.
async fn repeats(s: &Session, other: &Session, query: &str) -> bool {
    let rows = format!("SELECT array_agg(q::text ORDER BY q::text)::text FROM ({query}) q");
    let first: Option<String> = s.client().query_one(&rows, &[]).await.unwrap().get(0);
    // The test uses up a transaction number, as happens between refreshes.
    run(other, "SELECT pg_current_xact_id()").await;
    let second: Option<String> = other.client().query_one(&rows, &[]).await.unwrap().get(0);
    first == second
}

async fn types_differ(s: &Session, what: &str, query: &str) -> Option<String> {
    if s.client().batch_execute(&format!("CREATE TEMP VIEW meant AS {query}")).await.is_err() {
        return None;
    }
    let (stored, meant) = (columns(s, what).await, columns(s, "meant").await);
    run(s, "DROP VIEW meant").await;
    (stored != meant).then(|| format!("{query}\n    has columns {stored}, expected {meant}"))
}

/// Returns how a stream table differs from its query after a refresh. Returns `None` if it does not differ.
async fn differs(t: &mut Driver, s: &Session, what: &str, query: &str, before: &Outcome) -> Option<String> {
    if matches!(before, Outcome::Wrong(_)) {
        return None;
    }
    if let Err(e) = try_refresh(t, what).await {
        return Some(format!("{query}\n    cannot be refreshed: {e}"));
    }
    if *before == Outcome::Unrepeatable {
        return None;
    }
    let different = difference(s, &format!("TABLE {what}"), query).await;
    (!different.is_empty()).then(|| format!("{query}\n    differs: {different}"))
}

/// Writes the number of subjects of each kind with each outcome. Lists the subjects of each outcome other
/// than deltas.
fn report(outcomes: &[(Subject, Outcome)]) -> String {
    let mut counts: BTreeMap<(String, &str), usize> = BTreeMap::new();
    let mut listed: BTreeMap<(u8, String), Vec<&str>> = BTreeMap::new();
    for (subject, outcome) in outcomes {
        let kind = subject.name.split(' ').next().unwrap_or_default().to_owned();
        let (order, word, reason) = match outcome {
            Outcome::Wrong(how) => (0, "wrong", how.clone()),
            Outcome::Deltas => (1, "deltas", String::new()),
            Outcome::Recomputed(reason) => (2, "recomputed", reason.clone()),
            Outcome::Refused(reason) => (3, "refused", reason.clone()),
            Outcome::Unrepeatable => (4, "unrepeatable", String::new()),
            Outcome::Raises => (5, "raises with all samples", String::new()),
        };
        *counts.entry((kind, word)).or_default() += 1;
        if order != 1 {
            listed.entry((order, format!("{word}: {reason}"))).or_default().push(&subject.name);
        }
    }
    let mut text = String::new();
    for ((kind, word), n) in &counts {
        let _ = writeln!(text, "{kind}: {word} {n}");
    }
    for ((_, what), names) in &listed {
        let _ = writeln!(text, "\n{what}\n  {}: {}", names.len(), names.join("; "));
    }
    text
}
