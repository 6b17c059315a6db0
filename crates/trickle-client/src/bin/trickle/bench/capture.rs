//! Measures the cost of capture for writers. The same statements run on several tables: one without capture,
//! one with an expert's triggers, and one for each kind of trickle's triggers.

use super::cycle::SCHEMA;
use crate::failure::Failure;
use futures_util::future;
use std::time::{Duration, Instant};
use tokio_postgres::Client;
use trickle_client::{Name, NewStreamTable, Trickle};

/// The number of single-row statements that each writer runs.
pub(crate) const SINGLE: u32 = 1_000;

/// The shape of a table: the number and the size of its columns.
pub(crate) struct Shape {
    pub(crate) name: &'static str,
    columns: u32,
    /// The number of characters in the text column. From some 2,000 on, the server stores the text out of
    /// line. No update changes this column.
    text: u32,
}

/// All shapes that are measured.
pub(crate) const SHAPES: [Shape; 4] = [
    Shape { name: "3 columns", columns: 3, text: 12 },
    Shape { name: "20 columns", columns: 20, text: 12 },
    Shape { name: "100 columns", columns: 100, text: 12 },
    Shape { name: "3 columns, one out of line", columns: 3, text: 4_000 },
];

/// The method by which the changes of a table are captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Captor {
    /// The changes are not captured.
    Nobody,
    /// By an expert's statement triggers into a logged table.
    Hand,
    /// By statement triggers.
    Statement,
    /// By statement triggers into a buffer without WAL.
    Unlogged,
    /// By row triggers.
    Row,
    /// By the extension's statement triggers, in C.
    Extension,
}

impl Captor {
    /// All methods. The other methods are compared with the first two.
    pub(crate) const ALL: [Captor; 6] =
        [Captor::Nobody, Captor::Hand, Captor::Statement, Captor::Unlogged, Captor::Row, Captor::Extension];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Captor::Nobody => "untracked",
            Captor::Hand => "hand",
            Captor::Statement => "statement",
            Captor::Unlogged => "unlogged",
            Captor::Row => "row",
            Captor::Extension => "extension",
        }
    }

    fn table(self) -> String {
        format!("{SCHEMA}.by_{}", self.name())
    }
}

/// One kind of writers' work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Work {
    /// An update of this many rows by one statement.
    Update(u32),
    /// A delete of this many rows by one statement.
    Delete(u32),
    /// An insert of this many rows by one statement.
    Insert(u32),
    /// Updates of one row after another, by this many writers at the same time.
    Single(u32),
}

impl Work {
    pub(crate) fn name(self) -> String {
        match self {
            Work::Update(rows) => format!("UPDATE of {rows} rows"),
            Work::Delete(rows) => format!("DELETE of {rows} rows"),
            Work::Insert(rows) => format!("INSERT of {rows} rows"),
            Work::Single(1) => format!("{SINGLE} UPDATEs of a row"),
            Work::Single(writers) => format!("{SINGLE} UPDATEs of a row by each of {writers}"),
        }
    }

    /// Returns the number of change rows that capture must write.
    fn changes(self) -> u32 {
        match self {
            Work::Update(rows) => 2 * rows,
            Work::Delete(rows) | Work::Insert(rows) => rows,
            Work::Single(writers) => 2 * SINGLE * writers,
        }
    }
}

/// The time that one kind of work took on the table that one method captures.
pub(crate) struct Measured {
    pub(crate) shape: &'static str,
    pub(crate) work: Work,
    pub(crate) captor: Captor,
    pub(crate) took: Duration,
}

/// The tables of one shape, one for each method of capture.
pub(crate) struct Fixture<'b> {
    shape: &'b Shape,
    /// The sessions that write.
    writers: &'b [&'b Client],
    /// For each method of capture, the relation in which captured changes are counted, and the relations to
    /// empty after each work.
    buffers: Vec<(Captor, String, Vec<String>)>,
}

impl<'b> Fixture<'b> {
    /// Makes the tables with `rows` rows each. Each of `refreshers` captures the table of its own method.
    pub(crate) async fn new(
        shape: &'b Shape,
        rows: u32,
        writers: &'b [&'b Client],
        refreshers: &mut [(Captor, Trickle)],
    ) -> Result<Fixture<'b>, Failure> {
        let client = writers[0];
        client.batch_execute(&shape.ddl(rows)).await?;
        let hand = format!("{SCHEMA}.changes");
        let mut buffers = vec![(Captor::Hand, hand.clone(), vec![hand])];
        for (captor, trickle) in refreshers {
            let (table, name) = (captor.table(), format!("{SCHEMA}.of_{}", captor.name()));
            trickle
                .create(&NewStreamTable::new(Name::parse(&name)?, format!("SELECT * FROM {table}")))
                .await?;
            let segments = "SELECT format('pgtrickle_changes.changes_%s', $1::text::regclass::oid), \
                 array_agg(oid::regclass::text) FROM pg_class WHERE relkind = 'r' \
                 AND relname ~ format('^changes_%s_\\d+$', $1::text::regclass::oid)";
            let row = client.query_one(segments, &[&table]).await?;
            buffers.push((*captor, row.get(0), row.get(1)));
        }
        Ok(Fixture { shape, writers, buffers })
    }

    /// Does each kind of work once on each table. The tables take turns in being first.
    pub(crate) async fn cycle(&self, cycle: usize, works: &[Work]) -> Result<Vec<Measured>, Failure> {
        let mut measured = Vec::new();
        let mut captors = vec![Captor::Nobody];
        captors.extend(self.buffers.iter().map(|(captor, ..)| *captor));
        let turn = cycle % captors.len();
        captors.rotate_left(turn);
        for work in works {
            for &captor in &captors {
                let took = self.time(*work, &captor.table()).await?;
                self.verify(*work, captor).await?;
                measured.push(Measured { shape: self.shape.name, work: *work, captor, took });
            }
        }
        for captor in captors {
            self.writers[0].batch_execute(&format!("VACUUM {}", captor.table())).await?;
        }
        Ok(measured)
    }

    async fn time(&self, work: Work, table: &str) -> Result<Duration, Failure> {
        let client = self.writers[0];
        let text = match work {
            Work::Update(_) => format!("UPDATE {table} SET n = n + 1"),
            Work::Delete(_) => format!("DELETE FROM {table}"),
            Work::Insert(_) => format!("INSERT INTO {table} SELECT * FROM {SCHEMA}.base"),
            Work::Single(writers) => return self.single(writers, table).await,
        };
        let started = Instant::now();
        client.batch_execute(&text).await?;
        Ok(started.elapsed())
    }

    async fn single(&self, writers: u32, table: &str) -> Result<Duration, Failure> {
        let text = format!("UPDATE {table} SET n = n + 1 WHERE id = $1");
        let mut ready = Vec::new();
        for (client, from) in self.writers.iter().zip((1..).step_by(SINGLE as usize)).take(writers as usize) {
            ready.push((client, client.prepare(&text).await?, from));
        }
        let started = Instant::now();
        let all = ready.iter().map(async |(client, update, from)| {
            for id in *from..*from + i32::try_from(SINGLE).unwrap_or(0) {
                client.execute(update, &[&id]).await?;
            }
            Ok::<(), tokio_postgres::Error>(())
        });
        future::try_join_all(all).await?;
        Ok(started.elapsed())
    }

    /// Checks that all written changes were captured, and empties the buffers.
    async fn verify(&self, work: Work, captor: Captor) -> Result<(), Failure> {
        let Some((_, buffer, tables)) = self.buffers.iter().find(|(c, ..)| *c == captor) else {
            return Ok(());
        };
        let client = self.writers[0];
        let found: i64 = client.query_one(&format!("SELECT count(w) FROM {buffer}"), &[]).await?.get(0);
        if found != i64::from(work.changes()) {
            let (name, expected) = (captor.name(), work.changes());
            return Err(Failure::failed(format!(
                "{}, {name}: {found} changes captured of {expected}",
                work.name()
            )));
        }
        client.batch_execute(&format!("TRUNCATE {}", tables.join(", "))).await?;
        if captor == Captor::Unlogged {
            // A buffer without WAL needs a row as proof that no crash emptied the buffer.
            for table in tables {
                client.batch_execute(&format!("INSERT INTO {table} (w) VALUES (NULL)")).await?;
            }
        }
        Ok(())
    }
}

/// Removes all objects of the measurement.
pub(crate) async fn clear(client: &Client, refreshers: &mut [(Captor, Trickle)]) -> Result<(), Failure> {
    for (captor, trickle) in refreshers {
        let name = Name::parse(&format!("{SCHEMA}.of_{}", captor.name()))?;
        if trickle.find(&name).await.is_ok() {
            trickle.drop(&name, false).await?;
        }
    }
    client.batch_execute(&format!("DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")).await?;
    Ok(())
}

impl Shape {
    /// Returns the statements that make the tables with their rows, and the expert's buffer and triggers.
    fn ddl(&self, rows: u32) -> String {
        let rest: Vec<String> = (0..self.columns.saturating_sub(3))
            .map(|i| if i % 2 == 0 { format!("i AS n{i}") } else { format!("'value ' || i AS t{i}") })
            .collect();
        let rest = if rest.is_empty() { String::new() } else { format!(", {}", rest.join(", ")) };
        let tables: Vec<String> = Captor::ALL
            .iter()
            .map(|c| {
                let t = c.table();
                format!("CREATE TABLE {t} AS TABLE {SCHEMA}.base; ALTER TABLE {t} ADD PRIMARY KEY (id);")
            })
            .collect();
        let hand = Captor::Hand.table();
        let trigger = |event: &str, transition: &str, source: &str| {
            let name = event.to_lowercase();
            format!(
                "CREATE FUNCTION {SCHEMA}.capture_{name}() RETURNS trigger LANGUAGE plpgsql AS \
                 $$BEGIN INSERT INTO {SCHEMA}.changes {source}; RETURN NULL; END$$;
                 CREATE TRIGGER capture_{name} AFTER {event} ON {hand} REFERENCING {transition} \
                 FOR EACH STATEMENT EXECUTE FUNCTION {SCHEMA}.capture_{name}();"
            )
        };
        let (gone, come) = ("SELECT -1, * FROM gone", "SELECT 1, * FROM come");
        // The texts are made of digests, since these do not compress.
        format!(
            "CREATE SCHEMA {SCHEMA};
             CREATE TABLE {SCHEMA}.base AS SELECT i AS id, i AS n, (SELECT substr(string_agg(md5(i || ' ' || j), ''), 1, {text}) \
                FROM generate_series(0, {text} / 32) j) AS t{rest} FROM generate_series(1, {rows}) i;
             {tables}
             CREATE TABLE {SCHEMA}.changes AS SELECT 1::smallint AS w, b.* FROM {SCHEMA}.base b LIMIT 0;
             {} {} {}",
            trigger("INSERT", "NEW TABLE AS come", come),
            trigger("UPDATE", "OLD TABLE AS gone NEW TABLE AS come", &format!("{gone} UNION ALL {come}")),
            trigger("DELETE", "OLD TABLE AS gone", gone),
            text = self.text,
            tables = tables.join("\n"),
        )
    }
}
