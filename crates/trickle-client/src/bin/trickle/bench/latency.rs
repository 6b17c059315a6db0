//! Measures how soon a change is visible after its commit, and how much capture and refreshes cost writers.
//! Many writers commit many small transactions, while a refresher looks for changes. For comparison, writers
//! wake a listener by NOTIFY. The cost of a refresher is also measured while nobody writes.

use super::cycle::SCHEMA;
use crate::failure::Failure;
use futures_util::future;
use serde_json::{Value, json};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tokio_postgres::{AsyncMessage, Client};
use trickle_client::throwaway::Server;
use trickle_client::{Name, NewStreamTable, Session, Trickle};

/// The number of rows that writers change, one row in each transaction.
const ROWS: u32 = 10_000;

/// The work that runs while writers write, beside their own changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriterLoad {
    /// No other work.
    Untracked,
    /// Capture of the changes.
    Captured,
    /// Capture of the changes, while a refresher looks for changes.
    Looking,
    /// Capture of the changes, and in each statement a NOTIFY to which a session listens.
    Notifying,
}

impl WriterLoad {
    pub(crate) const ALL: [WriterLoad; 4] =
        [WriterLoad::Untracked, WriterLoad::Captured, WriterLoad::Looking, WriterLoad::Notifying];

    fn name(self) -> &'static str {
        match self {
            WriterLoad::Untracked => "untracked",
            WriterLoad::Captured => "captured",
            WriterLoad::Looking => "captured, refresher",
            WriterLoad::Notifying => "captured, NOTIFY",
        }
    }
}

/// The number of writers, and the rate and duration of their writing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) writers: u32,
    /// Transactions per second, of all writers together.
    pub(crate) rate: u32,
    pub(crate) time: Duration,
}

/// The measurements under one load.
pub(crate) struct Measured {
    way: WriterLoad,
    /// The number of transactions per second if writers do not pause.
    most: f64,
    /// Durations of single transactions at the rate of [`Load`].
    commit: Vec<Duration>,
    /// Times from the end of a commit until the change was visible in the stream table, or until the listener
    /// was notified.
    seen: Vec<Duration>,
}

/// The cost per second of a refresher that has nothing to do.
pub(crate) struct Idle {
    transactions: f64,
    /// Milliseconds of processor time of the program `trickle run`. `None` for the server's own refresher,
    /// and on systems without `/proc`.
    own_cpu: Option<f64>,
    /// Milliseconds of processor time of the server processes that work for the refresher.
    server_cpu: Option<f64>,
}

/// Returns the period of a schedule in seconds. For a schedule without a period, returns the shortest allowed
/// period, 0.01.
pub(crate) fn seconds(schedule: &str) -> f64 {
    let schedule = trickle_core::schedule::Schedule::parse(schedule).ok();
    schedule.and_then(|s| s.period()).map_or(0.01, |p| p.as_secs_f64())
}

/// A refresher that ends with the measurement: the process of `trickle run`, or `None` for the server's own
/// refresher.
struct Refresher(Option<Child>);

impl Refresher {
    fn start(server: &Server, schedule: &str) -> Result<Refresher, Failure> {
        let fail = |e: std::io::Error| Failure::failed(format!("cannot start a refresher: {e}"));
        let program = std::env::current_exe().map_err(fail)?;
        let to = format!("host='{}' user=postgres dbname=postgres", server.directory().display());
        let seconds = seconds(schedule);
        let child = Command::new(program)
            .args(["run", "--quiet", "--database-url", &to, "--min-schedule-seconds", &seconds.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn();
        child.map(|child| Refresher(Some(child))).map_err(fail)
    }

    /// Returns the milliseconds of processor time that the program has used.
    fn cpu_ms(&self) -> Option<f64> {
        cpu_ms(self.0.as_ref()?.id())
    }
}

impl Drop for Refresher {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            // The program has ended already, or is killed here. The server rolls back its uncommitted work.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The server and the sessions of the measurement.
pub(crate) struct Fixture<'b> {
    pub(crate) server: &'b Server,
    pub(crate) trickle: &'b mut Trickle,
    pub(crate) client: &'b Client,
    pub(crate) writers: Vec<Session>,
    /// The schedule of the stream table, by which the refresher looks for changes.
    pub(crate) schedule: &'b str,
    /// Whether the triggers and the refresher of the extension are measured. If so, the server has loaded the
    /// extension.
    pub(crate) extension: bool,
}

const TOTALS: &str = "SELECT grp, count(*) AS n, sum(v) AS s FROM trickle_bench.src GROUP BY grp";

impl Fixture<'_> {
    /// Measures one [`WriterLoad`] after the other.
    pub(crate) async fn measure(&mut self, load: Load) -> Result<(Vec<Measured>, Idle), Failure> {
        let made = format!(
            "CREATE SCHEMA {SCHEMA}; CREATE TABLE {SCHEMA}.src (id int PRIMARY KEY, grp int NOT NULL, v int NOT NULL); \
             INSERT INTO {SCHEMA}.src SELECT i, i % 100, i FROM generate_series(1, {ROWS}) i; ANALYZE {SCHEMA}.src; \
             CREATE FUNCTION {SCHEMA}.wake() RETURNS trigger LANGUAGE plpgsql AS \
             $$ BEGIN PERFORM pg_notify('changed', ''); RETURN NULL; END $$"
        );
        self.client.batch_execute(&made).await?;
        self.switch("off").await?;
        let mut all = Vec::new();
        let mut idle = None;
        for way in WriterLoad::ALL {
            if way == WriterLoad::Captured {
                self.create().await?;
            }
            let refresher = if way == WriterLoad::Looking { Some(self.begin().await?) } else { None };
            if way == WriterLoad::Notifying {
                let trigger = format!(
                    "CREATE TRIGGER wake AFTER INSERT OR UPDATE OR DELETE ON {SCHEMA}.src EXECUTE FUNCTION {SCHEMA}.wake()"
                );
                self.client.batch_execute(&trigger).await?;
            }
            all.push(self.way(way, load).await?);
            if let Some(refresher) = &refresher {
                self.settled().await?;
                idle = Some(self.idle(refresher, load.time).await?);
                self.switch("off").await?;
            }
        }
        self.trickle.drop(&Name::parse(&format!("{SCHEMA}.totals"))?, false).await?;
        self.client.batch_execute(&format!("DROP SCHEMA {SCHEMA} CASCADE")).await?;
        let idle = idle.ok_or_else(|| Failure::failed("nothing idle was measured"))?;
        Ok((all, idle))
    }

    async fn create(&mut self) -> Result<(), Failure> {
        let name = format!("{SCHEMA}.totals");
        if self.extension {
            let text = "SELECT pgtrickle.create_stream_table($1::text, $2::text, $3::text)";
            self.client.query(text, &[&name, &TOTALS, &self.schedule]).await?;
        } else {
            let mut new = NewStreamTable::new(Name::parse(&name)?, TOTALS);
            new.schedule = Some(Some(self.schedule.to_owned()));
            self.trickle.create(&new).await?;
        }
        Ok(())
    }

    /// Starts a refresher, and waits until the stream table equals its query.
    async fn begin(&self) -> Result<Refresher, Failure> {
        let refresher = match self.extension {
            true => Refresher(None),
            false => Refresher::start(self.server, self.schedule)?,
        };
        self.switch("on").await?;
        self.settled().await?;
        Ok(refresher)
    }

    /// Switches the server's own refresher on or off.
    async fn switch(&self, to: &str) -> Result<(), Failure> {
        if self.extension {
            self.client.batch_execute(&format!("ALTER SYSTEM SET pg_trickle.enabled = {to}")).await?;
            self.client.batch_execute("SELECT pg_reload_conf()").await?;
        }
        Ok(())
    }

    async fn way(&self, way: WriterLoad, load: Load) -> Result<Measured, Failure> {
        let mut most = 0.0;
        let mut commit = Vec::new();
        let mut seen = Vec::new();
        for paced in [false, true] {
            let pause = paced.then(|| Duration::from_secs(1) * load.writers / load.rate.max(1));
            let until = Instant::now() + load.time;
            let writes = self.writers.iter().enumerate().map(|(i, w)| write(w.client(), i, pause, until));
            let probes = async {
                match way {
                    WriterLoad::Looking if paced => self.visible(until).await,
                    WriterLoad::Notifying if paced => self.notified(until).await,
                    _ => Ok(Vec::new()),
                }
            };
            let (written, probed) = future::join(future::try_join_all(writes), probes).await;
            let times = written?.concat();
            if paced {
                (commit, seen) = (times, probed?);
            } else {
                most = times.len() as f64 / load.time.as_secs_f64();
            }
        }
        Ok(Measured { way, most, commit, seen })
    }

    /// Waits until the stream table equals its query.
    async fn settled(&self) -> Result<(), Failure> {
        let late = Instant::now() + Duration::from_secs(60);
        let same = format!(
            "SELECT NOT EXISTS (TABLE {SCHEMA}.totals EXCEPT ALL ({TOTALS})) AND NOT EXISTS (({TOTALS}) EXCEPT ALL TABLE {SCHEMA}.totals)"
        );
        while !self.client.query_one(&same, &[]).await?.get::<_, bool>(0) {
            if Instant::now() > late {
                return Err(Failure::failed("the refresher does not bring the stream table up to date"));
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    }

    /// Inserts rows of a separate group, one by one. Measures for each row the time from its commit until the
    /// row is visible in the stream table.
    async fn visible(&self, until: Instant) -> Result<Vec<Duration>, Failure> {
        let (insert, look) = self.probe().await?;
        let mut all = Vec::new();
        let before: i64 = self.client.query_one(&look, &[]).await?.get(0);
        for n in 1.. {
            if Instant::now() >= until {
                break;
            }
            self.client
                .query(&insert, &[&(1_000_000 + i32::try_from(before + n).unwrap_or(i32::MAX))])
                .await?;
            let committed = Instant::now();
            while self.client.query_one(&look, &[]).await?.get::<_, i64>(0) < before + n {
                if committed.elapsed() > Duration::from_secs(10) {
                    return Err(Failure::failed("a change does not become visible"));
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            all.push(committed.elapsed());
            tokio::time::sleep(Duration::from_millis(7)).await;
        }
        Ok(all)
    }

    async fn probe(&self) -> Result<(tokio_postgres::Statement, tokio_postgres::Statement), Failure> {
        let insert = format!("INSERT INTO {SCHEMA}.src VALUES ($1, 100, 1)");
        let look = format!("SELECT coalesce((SELECT n FROM {SCHEMA}.totals WHERE grp = 100), 0)");
        Ok((self.client.prepare(&insert).await?, self.client.prepare(&look).await?))
    }

    /// Inserts rows of the same group as `visible` does, one by one. Measures for each row the time from its
    /// commit until a listening session is notified.
    async fn notified(&self, until: Instant) -> Result<Vec<Duration>, Failure> {
        let (listener, mut connection) =
            self.server.config("postgres").connect(tokio_postgres::NoTls).await?;
        let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
        let driven = async move {
            while let Some(message) = future::poll_fn(|cx| connection.poll_message(cx)).await {
                match message {
                    Ok(AsyncMessage::Notification(_)) => drop(tell.send(Instant::now())),
                    Ok(_) => {}
                    Err(_) => return,
                }
            }
        };
        let driver = tokio::spawn(driven);
        listener.batch_execute("LISTEN changed").await?;
        let (insert, _) = self.probe().await?;
        let mut all = Vec::new();
        for n in 1.. {
            if Instant::now() >= until {
                break;
            }
            self.client.query(&insert, &[&(2_000_000 + n)]).await?;
            let committed = Instant::now();
            // Notifications of other writers count, too: a refresher would be woken by the first notification
            // after the commit.
            while told.recv().await.is_some_and(|at| at < committed) {}
            all.push(committed.elapsed());
            tokio::time::sleep(Duration::from_millis(7)).await;
        }
        driver.abort();
        Ok(all)
    }

    async fn idle(&self, refresher: &Refresher, time: Duration) -> Result<Idle, Failure> {
        let count =
            "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()";
        let processes = "SELECT array_agg(pid) FROM pg_stat_activity \
             WHERE application_name = 'trickle run' OR backend_type LIKE 'pg\\_trickle %'";
        // A session that becomes idle reports its statistics only seconds later, unless the session is asked
        // to report them at once.
        let flush =
            self.writers.iter().map(|w| w.client().batch_execute("SELECT pg_stat_force_next_flush()"));
        future::try_join_all(flush).await?;
        // Statistics become visible up to a second late.
        tokio::time::sleep(Duration::from_secs(2)).await;
        let of = |pids: &[i32]| pids.iter().map(|p| cpu_ms(u32::try_from(*p).ok()?)).sum::<Option<f64>>();
        let pids: Vec<i32> = self.client.query_one(processes, &[]).await?.get(0);
        let before = (refresher.cpu_ms(), of(&pids));
        let transactions: i64 = self.client.query_one(count, &[]).await?.get(0);
        tokio::time::sleep(time).await;
        let after = (refresher.cpu_ms(), of(&pids));
        tokio::time::sleep(Duration::from_secs(2)).await;
        let later: i64 = self.client.query_one(count, &[]).await?.get(0);
        let seconds = time.as_secs_f64();
        let spent = |a: Option<f64>, b: Option<f64>| Some((a? - b?) / seconds);
        Ok(Idle {
            transactions: (later - transactions) as f64 / (seconds + 2.0),
            own_cpu: spent(after.0, before.0),
            server_cpu: spent(after.1, before.1),
        })
    }
}

/// Returns the milliseconds of processor time that a process has used.
fn cpu_ms(pid: u32) -> Option<f64> {
    // See proc(5). The name of the process, in parentheses, may hold any text. Of the fields after the name,
    // utime and stime are the 12th and 13th, in ticks of 10 ms.
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = stat.rsplit(')').next()?.split_whitespace().collect();
    let ticks = |i: usize| fields.get(i)?.parse::<f64>().ok();
    Some((ticks(11)? + ticks(12)?) * 10.0)
}

/// Changes one row after another, each in a transaction of its own. Returns the durations of these
/// transactions.
async fn write(
    client: &Client,
    number: usize,
    pause: Option<Duration>,
    until: Instant,
) -> Result<Vec<Duration>, Failure> {
    let update = client.prepare(&format!("UPDATE {SCHEMA}.src SET v = v + 1 WHERE id = $1")).await?;
    let mut all = Vec::new();
    let mut next = Instant::now() + pause.unwrap_or_default() * u32::try_from(number).unwrap_or(0) / 16;
    let mut row = number * 613;
    while Instant::now() < until {
        if let Some(pause) = pause {
            tokio::time::sleep_until(next.into()).await;
            next = Instant::now().max(next + pause);
        }
        row = (row + 1_613) % ROWS as usize;
        let started = Instant::now();
        client.execute(&update, &[&i32::try_from(row + 1).unwrap_or(1)]).await?;
        all.push(started.elapsed());
    }
    Ok(all)
}

/// Returns the time in milliseconds below which this share of the sorted times lies.
fn percentile(times: &[Duration], share: f64) -> Option<f64> {
    let at = (times.len().checked_sub(1)? as f64 * share).round() as usize;
    times.get(at).map(|t| t.as_secs_f64() * 1e3)
}

/// Returns the 50th, 95th and 99th percentile of times, in milliseconds.
fn percentiles(times: &[Duration]) -> [Option<f64>; 3] {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    [0.5, 0.95, 0.99].map(|share| percentile(&sorted, share))
}

/// Returns the measurements as JSON, the form for programs. `commits` is the value of the server's setting
/// that makes commits wait for the disk.
pub(crate) fn document(
    all: &[Measured],
    idle: &Idle,
    load: Load,
    server: &str,
    schedule: &str,
    commits: &str,
) -> Value {
    let named = |[p50, p95, p99]: [Option<f64>; 3]| json!({"p50": p50, "p95": p95, "p99": p99});
    let ways: Vec<Value> = all
        .iter()
        .map(|m| {
            json!({
                "way": m.way.name(), "transactions_per_second": m.most,
                "commit_ms": named(percentiles(&m.commit)), "visible_ms": named(percentiles(&m.seen)),
                "probes": m.seen.len(),
            })
        })
        .collect();
    json!({
        "server": server, "synchronous_commit": commits, "schedule": schedule, "writers": load.writers, "rate": load.rate, "ways": ways,
        "idle": {
            "transactions_per_second": idle.transactions,
            "refresher_cpu_ms_per_second": idle.own_cpu, "server_cpu_ms_per_second": idle.server_cpu,
        },
    })
}

/// Returns the line of one measurement in the table for people.
pub(crate) fn row(m: &Measured) -> Vec<String> {
    let ms = |p: Option<f64>| p.map_or_else(|| "–".to_owned(), |ms| format!("{ms:.1}"));
    let joined = |p: [Option<f64>; 3]| p.map(ms).join(" / ");
    vec![
        m.way.name().to_owned(),
        format!("{:.0}", m.most),
        joined(percentiles(&m.commit)),
        joined(percentiles(&m.seen)),
    ]
}

/// Describes the cost of a refresher that has nothing to do, for people.
pub(crate) fn idle_line(idle: &Idle, schedule: &str) -> String {
    let cpu = match (idle.own_cpu, idle.server_cpu) {
        (Some(own), Some(server)) => {
            format!(", {own:.1} ms of processor time in the refresher and {server:.1} ms in the server")
        }
        (None, Some(server)) => format!(", {server:.1} ms of processor time in the server"),
        (_, None) => String::new(),
    };
    format!(
        "\nwhere nobody writes, looking every {schedule}: {:.0} transactions{cpu}, in a second\n",
        idle.transactions
    )
}
