//! Whole benchmarks. No scan in a delta of their queries reads more than a few rows. When the tables are ten
//! times as large, the deltas read few more rows.

use super::explained::{Delta, Scan, Tables, update};
use crate::support::{Db, is_todays, newest_server};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use tokio_postgres::Client;

/// Number of rows up to which a sequential scan reads only a page or two.
const SMALL: f64 = 250.0;
/// Greatest factor by which a delta may read more rows of a relation when all tables have ten times as many
/// rows. In addition, a delta may read `SOME` more rows. A delta over larger tables reads more rows for two
/// reasons: a row has more partners, and the server chooses other plans.
const GROWTH: f64 = 3.0;
const SOME: f64 = 3_000.0;

/// A benchmark: its queries, and the changes of their tables.
pub(crate) struct Benchmark {
    pub(crate) schema: &'static str,
    /// Names and texts of the queries.
    pub(crate) queries: &'static [(&'static str, &'static str)],
    /// Tables, each with a condition that selects a few of its rows and an update of these rows. `:scale`
    /// stands for the factor of the number of rows: 1 or 10.
    pub(crate) changes: &'static [(&'static str, &'static str, &'static str)],
    /// Greatest number of rows that a scan may read. This number is small compared with the larger tables.
    pub(crate) most: f64,
    pub(crate) reviewed: &'static [Reviewed],
}

/// An accepted read beyond the limit: the names of queries, of changed tables and of relations that are read,
/// and the reason. Names are separated by spaces. A name that ends in an underscore is the common beginning
/// of the names of states.
pub(crate) struct Reviewed(
    pub(crate) &'static str,
    pub(crate) &'static str,
    pub(crate) &'static str,
    pub(crate) &'static str,
);

/// The deltas of a benchmark, by query and changed table.
type Deltas = BTreeMap<(&'static str, &'static str), Delta>;
/// Names in reviewed entries, each with the position of its entry.
type Words = BTreeSet<(usize, &'static str)>;

impl Benchmark {
    /// Asserts that no delta reads too many rows. `fill` makes and fills the tables. The argument of `fill`
    /// multiplies the number of rows.
    pub(crate) fn reads_what_a_change_touches(&self, fill: impl AsyncFn(&Client, usize) + Sync) {
        let seen = Mutex::new((0, Words::new()));
        newest_server(async |db| {
            let (few, _) = self.deltas(db, &fill, 1).await;
            let (many, tables) = self.deltas(db, &fill, 10).await;
            let (mut found, mut needed) = (Vec::new(), Words::new());
            for ((query, changed), delta) in &many {
                let fewer = few[&(*query, *changed)].by_relation();
                let bounds: BTreeMap<_, _> =
                    fewer.into_iter().map(|(r, rows)| (r, GROWTH * rows + SOME)).collect();
                let reads = delta.by_relation();
                let is_too_much = |s: &Scan| {
                    let is_whole = s.node == "Seq Scan";
                    let grows = reads[&*s.relation] > bounds.get(&*s.relation).copied().unwrap_or(SOME);
                    s.rows > self.most || (s.rows > SMALL && (is_whole || grows))
                };
                for s in delta.scans.iter().filter(|s| is_too_much(s)) {
                    needed.extend(self.allowing(query, changed, &s.relation));
                }
                let what = format!("{query}, changed {changed}");
                let is_reviewed = |s: &Scan| !self.allowing(query, changed, &s.relation).is_empty();
                found.extend(delta.beyond(&what, |s| is_too_much(s) && !is_reviewed(s)));
            }
            tables.assert_none(&found);
            let mut seen = seen.lock().unwrap();
            seen.0 += 1;
            seen.1.extend(needed);
        });
        let (servers, needed) = seen.into_inner().unwrap();
        // Another server version may not need every reviewed entry, so unused entries are reported only over
        // all servers.
        if servers > 1 {
            let mut idle = Vec::new();
            for (i, Reviewed(queries, changed, read, why)) in self.reviewed.iter().enumerate() {
                let words = [queries, changed, read].into_iter().flat_map(|words| words.split(' '));
                idle.extend(words.filter(|w| !needed.contains(&(i, *w))).map(|w| format!("{w} ({why})")));
            }
            assert!(idle.is_empty(), "reviewed, and not read any more: {}", idle.join(", "));
        }
    }

    /// Returns all deltas over tables of the size `scale`, and the tables.
    async fn deltas(&self, db: &Db, fill: &impl AsyncFn(&Client, usize), scale: usize) -> (Deltas, Tables) {
        let session = db.session().await;
        let clear = "DROP SCHEMA IF EXISTS public, pgtrickle_changes CASCADE; CREATE SCHEMA public";
        session.client().batch_execute(clear).await.unwrap();
        fill(session.client(), scale).await;
        session.client().batch_execute("ANALYZE; SET random_page_cost = 1.1").await.unwrap();
        let tables = Tables::of(db, session, self.schema).await;
        let mut deltas = Deltas::new();
        // Each day the test uses half of the queries, the same half for both sizes of the tables.
        for (_, (query, sql)) in self.queries.iter().enumerate().filter(|(i, _)| is_todays(*i, 2)) {
            let kept = tables.keep(sql).await;
            for t in kept.sources() {
                if let Some((changed, rows, change)) = self.changes.iter().find(|c| *c.0 == *t.name) {
                    let changes = update(&t, &rows.replace(":scale", &scale.to_string()), change);
                    deltas.insert((query, changed), kept.delta(&BTreeSet::from([t.id]), &changes).await);
                }
            }
            kept.discard().await;
        }
        (deltas, tables)
    }

    /// Returns the names in the entries that allow a delta to read a relation. If no entry allows the read,
    /// the result is empty.
    fn allowing(&self, query: &str, changed: &str, relation: &str) -> Words {
        let word = |words: &'static str, fits: &dyn Fn(&str) -> bool| words.split(' ').find(|w| fits(w));
        let mut found = Words::new();
        for (i, Reviewed(queries, tables, read, _)) in self.reviewed.iter().enumerate() {
            let query = word(queries, &|w| w == query);
            let changed = word(tables, &|w| w == changed);
            let read = word(read, &|w| w == relation || (w.ends_with('_') && relation.starts_with(w)));
            if let (Some(query), Some(changed), Some(read)) = (query, changed, read) {
                found.extend([(i, query), (i, changed), (i, read)]);
            }
        }
        found
    }
}
