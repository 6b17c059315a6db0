//! Settings: the value of a flag wins over the value in the file, and both win over the library's default. A
//! setting is one field with its doc comment, from which its flag, its key in the file and its help are made.

use crate::failure::Failure;
use crate::seeing::is_host_name;
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::time::Duration;
use trickle_client::Settings;
use trickle_client::daemon::DaemonOptions;
use trickle_core::cdc::Mode;
use trickle_core::cost::Force;
use trickle_core::near::nearest;

/// The file that is read if it is in the current directory and no other file is named.
const FILE: &str = "trickle.toml";

/// The hint that names the list of settings.
const LISTED: &str = "trickle run --help lists the settings.";

/// PostgreSQL counts work_mem in kB, up to 2³¹ − 1.
const MOST_WORK_MEM: u32 = (i32::MAX / 1024) as u32;

macro_rules! settings {
    ($($(#[$about:meta])* $name:ident: $ty:ty),* $(,)?) => {
        /// The settings that were given.
        #[derive(Clone, Debug, Default, PartialEq, clap::Args, Deserialize)]
        #[serde(deny_unknown_fields, default)]
        #[command(next_help_heading = "Settings (also keys of trickle.toml, with underscores)")]
        pub(crate) struct Given {
            $($(#[$about])* #[arg(long, global = true, hide_short_help = true)] $name: Option<$ty>),*
        }

        impl Given {
            /// Returns these settings, with the values of `others` for settings that have none here.
            fn or(self, others: Given) -> Given {
                Given { $($name: self.$name.or(others.$name)),* }
            }
        }
    };
}

settings! {
    /// trickle run: whether the refresher refreshes stream tables. If not, the refresher only waits;
    /// refreshes by hand are still done [default: true]
    #[arg(value_name = "BOOL")]
    enabled: bool,
    /// trickle run: milliseconds between two looks for stream tables that were made or altered [default:
    /// 1000]
    #[arg(value_name = "MS")]
    scheduler_interval_ms: u64,
    /// trickle run: shortest time in seconds between two refreshes of a stream table [default: 0.01]
    #[arg(value_name = "SECONDS")]
    min_schedule_seconds: f64,
    /// trickle run: seconds between two recomputes of a calculated stream table that reads something that
    /// cannot be captured, if no reader of the stream table has a schedule [default: 60]
    #[arg(value_name = "SECONDS")]
    poll_seconds: u64,
    /// trickle run: whether stream tables that are not linked are refreshed at the same time, over several
    /// connections, or one after the other [default: on]
    #[arg(value_name = "HOW")]
    parallel_refresh_mode: Parallel,
    /// trickle run: greatest number of refreshes at the same time, if parallel_refresh_mode is on [default:
    /// 4]
    #[arg(value_name = "N")]
    max_concurrent_refreshes: usize,
    /// Number of failed refreshes in a row after which a stream table is suspended; 0 means never [default:
    /// 5]
    #[arg(value_name = "N")]
    max_consecutive_errors: u32,
    /// How a refresh is done if both a delta and a recompute are possible [default: auto, the one with the
    /// least predicted cost]
    #[arg(value_name = "HOW")]
    refresh_strategy: Strategy,
    /// Recompute a stream table if the ratio of changed rows to rows of its sources is above this value
    /// [default: none]
    #[arg(value_name = "RATIO")]
    differential_max_change_ratio: f64,
    /// Recompute a stream table if more rows than this changed [default: none]
    #[arg(value_name = "N")]
    max_delta_rows: u64,
    /// How changes are captured; wal is not built yet [default: auto, by triggers]
    #[arg(value_name = "HOW")]
    cdc_mode: CdcMode,
    /// Kind of triggers that capture changes, for tables that have none yet [default: statement]
    #[arg(value_name = "WHICH")]
    cdc_trigger_mode: TriggerMode,
    /// Whether new buffers are without WAL: after a crash of the server, stream tables that read such a
    /// buffer are recomputed [default: false]
    #[arg(value_name = "BOOL")]
    change_buffer_unlogged: bool,
    /// Size in bytes past which a buffer keeps no more changes, and its readers are recomputed; trickle init
    /// stores this size, for all clients [default: 1073741824]
    #[arg(value_name = "BYTES")]
    buffer_limit_bytes: i64,
    /// Size in bytes at which a part of a buffer is closed, to be emptied as a whole [default: 524288]
    #[arg(value_name = "BYTES")]
    segment_bytes: i64,
    /// Greatest number of connections that fill a large stream table, if its query reads a large table row by
    /// row [default: 4]
    #[arg(value_name = "N", visible_alias = "connections")]
    load_connections: usize,
    /// Size in bytes from which a table is large for load_connections [default: 67108864]
    #[arg(value_name = "BYTES")]
    load_bytes: u64,
    /// Milliseconds that a refresh waits for its locks; 0 means no limit [default: 10000]
    #[arg(value_name = "MS")]
    lock_timeout_ms: u32,
    /// Milliseconds that a statement of a refresh may take; 0 means no limit [default: the server's
    /// statement_timeout]
    #[arg(value_name = "MS")]
    statement_timeout_ms: u32,
    /// trickle run: milliseconds that a request for an ACCESS EXCLUSIVE lock on a table, such as a migration
    /// makes, waits for a refresh that reads the table. Then the refresh gives way, and begins again
    /// afterwards; 0 means that it never gives way [default: 1000]
    #[arg(value_name = "MS")]
    give_way_ms: u32,
    /// trickle run: whether repeated statements stay prepared on their connection; never through a pooler
    /// [default: true]
    #[arg(value_name = "BOOL")]
    use_prepared_statements: bool,
    /// Megabytes of work_mem for each sort and hash of a refresh. If merge_work_mem_max_mb is given too, this
    /// is the least value, for a refresh with few rows [default: the server's work_mem, or 4 if
    /// merge_work_mem_max_mb is given]
    #[arg(value_name = "MB")]
    merge_work_mem_mb: u32,
    /// Megabytes of work_mem for each sort and hash of a refresh with many rows; between few and many, the
    /// number of rows decides [default: merge_work_mem_mb]
    #[arg(value_name = "MB")]
    merge_work_mem_max_mb: u32,
    /// Days for which history is kept; 0 means forever [default: 30]
    #[arg(value_name = "DAYS")]
    history_retention_days: u32,
    /// trickle run, trickle doctor: age in seconds at which an open transaction, which keeps old rows from
    /// being removed, is reported [default: 300]
    #[arg(value_name = "SECONDS")]
    long_transaction_seconds: u64,
    /// trickle run --metrics: names by which requests may call the server, beside its address, such as the
    /// name of a proxy or a service. A request that names another host is refused [default: localhost, if the
    /// server listens there]
    #[arg(value_name = "NAME,…", value_delimiter = ',')]
    metrics_hosts: Vec<String>,
}

/// The method by which a refresh is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Strategy {
    /// By the delta or by a recompute, whichever has the least predicted cost.
    Auto,
    /// From the changes.
    Differential,
    /// By a run of the whole query.
    Full,
}

/// Whether refreshes run side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Parallel {
    /// One after the other.
    Off,
    /// At the same time, on several connections.
    On,
}

/// How changes are captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
enum CdcMode {
    /// By triggers.
    Auto,
    /// By triggers.
    Trigger,
    /// From the write-ahead log of the server.
    Wal,
}

/// The kind of triggers that capture changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
enum TriggerMode {
    /// Triggers that run once for each statement.
    Statement,
    /// Triggers that run once for each row.
    Row,
}

fn put<T>(slot: &mut T, given: Option<T>) {
    if let Some(given) = given {
        *slot = given;
    }
}

impl Given {
    /// Returns the settings of the flags, completed by the settings of a file. The file is `named`, else
    /// `trickle.toml` in the current directory.
    pub(crate) fn resolve(flags: Given, named: Option<&Path>) -> Result<Given, Failure> {
        let file = named.map_or_else(|| PathBuf::from(FILE), Path::to_path_buf);
        let given = match std::fs::read_to_string(&file) {
            Ok(text) => flags.or(parse(&text, &file)?),
            Err(e) if named.is_none() && e.kind() == std::io::ErrorKind::NotFound => flags,
            Err(e) => return Err(Failure::input(format!("cannot read {}: {e}", file.display()))),
        };
        given.check()?;
        Ok(given)
    }

    /// Refuses values outside the range of their setting.
    fn check(&self) -> Result<(), Failure> {
        let least = [
            ("scheduler_interval_ms", self.scheduler_interval_ms.map(u128::from), 10),
            ("max_concurrent_refreshes", self.max_concurrent_refreshes.map(|n| n as u128), 1),
            ("load_connections", self.load_connections.map(|n| n as u128), 1),
            ("long_transaction_seconds", self.long_transaction_seconds.map(u128::from), 1),
            ("merge_work_mem_mb", self.merge_work_mem_mb.map(u128::from), 1),
            (
                "merge_work_mem_max_mb",
                self.merge_work_mem_max_mb.map(u128::from),
                u128::from(self.merge_work_mem_mb.unwrap_or(1)),
            ),
            ("buffer_limit_bytes", self.buffer_limit_bytes.map(|n| u128::try_from(n).unwrap_or(0)), 1),
            ("segment_bytes", self.segment_bytes.map(|n| u128::try_from(n).unwrap_or(0)), 1),
        ];
        if let Some((name, _, least)) =
            least.iter().find(|(_, given, least)| given.is_some_and(|n| n < *least))
        {
            return Err(Failure::input(format!("{name} is at least {least}")).hint(LISTED));
        }
        if self.differential_max_change_ratio.is_some_and(|r| !(0.0..=1.0).contains(&r)) {
            return Err(Failure::input("differential_max_change_ratio is between 0 and 1").hint(LISTED));
        }
        if self.min_schedule_seconds.is_some_and(|s| !(0.001..=86_400.0).contains(&s)) {
            return Err(Failure::input("min_schedule_seconds is between 0.001 and 86400").hint(LISTED));
        }
        let memory = [
            ("merge_work_mem_mb", self.merge_work_mem_mb),
            ("merge_work_mem_max_mb", self.merge_work_mem_max_mb),
        ];
        if let Some((name, _)) = memory.iter().find(|(_, mb)| mb.is_some_and(|mb| mb > MOST_WORK_MEM)) {
            return Err(Failure::input(format!("{name} is at most {MOST_WORK_MEM}")).hint(LISTED));
        }
        if let Some(name) = self.metrics_hosts().iter().find(|n| !is_host_name(n)) {
            return Err(Failure::input(format!("metrics_hosts: \"{name}\" is no name of a host"))
                .hint("Give names without scheme, port or path, such as status.example.com."));
        }
        if self.cdc_mode == Some(CdcMode::Wal) {
            return Err(Failure::input("changes cannot be captured from the log of the server yet")
                .hint("Set cdc_mode to auto or trigger."));
        }
        Ok(())
    }

    /// Returns the settings that every command uses.
    pub(crate) fn settings(&self) -> Settings {
        let mut s = Settings { buffer_limit_bytes: self.buffer_limit_bytes, ..Settings::default() };
        let mode = |m| if m == TriggerMode::Row { Mode::Row } else { Mode::Statement };
        put(&mut s.capture.mode, self.cdc_trigger_mode.map(mode));
        put(&mut s.capture.unlogged, self.change_buffer_unlogged);
        put(&mut s.lock_timeout_ms, self.lock_timeout_ms);
        put(&mut s.max_consecutive_errors, self.max_consecutive_errors);
        put(&mut s.history_retention_days, self.history_retention_days);
        put(&mut s.long_transaction, self.long_transaction_seconds.map(Duration::from_secs));
        put(&mut s.give_way, self.give_way_ms.map(|ms| Duration::from_millis(u64::from(ms))));
        put(&mut s.segment_bytes, self.segment_bytes);
        put(&mut s.load_connections, self.load_connections);
        put(&mut s.load_bytes, self.load_bytes);
        put(&mut s.use_prepared_statements, self.use_prepared_statements);
        s.statement_timeout_ms = self.statement_timeout_ms;
        s.merge_work_mem_mb = self.merge_work_mem_mb;
        s.merge_work_mem_max_mb = self.merge_work_mem_max_mb;
        s.max_change_ratio = self.differential_max_change_ratio;
        s.max_delta_rows = self.max_delta_rows;
        s.force = match self.refresh_strategy {
            None | Some(Strategy::Auto) => None,
            Some(Strategy::Differential) => Some(Force::Incremental),
            Some(Strategy::Full) => Some(Force::Full),
        };
        s
    }

    /// Returns the names by which requests may call the status page.
    pub(crate) fn metrics_hosts(&self) -> &[String] {
        self.metrics_hosts.as_deref().unwrap_or_default()
    }

    /// Whether refreshes on schedule are wanted.
    pub(crate) fn enabled(&self) -> bool {
        self.enabled.unwrap_or(true)
    }

    /// Returns the options of the refresher.
    pub(crate) fn daemon(&self) -> DaemonOptions {
        let mut o = DaemonOptions { settings: self.settings(), ..DaemonOptions::default() };
        put(&mut o.scheduler.reload, self.scheduler_interval_ms.map(Duration::from_millis));
        let shortest = self.min_schedule_seconds.map(Duration::from_secs_f64);
        put(&mut o.scheduler.schedule.min_period, shortest);
        put(&mut o.scheduler.schedule.poll_period, self.poll_seconds.map(Duration::from_secs));
        put(&mut o.scheduler.schedule.max_concurrent, self.max_concurrent_refreshes);
        if self.parallel_refresh_mode == Some(Parallel::Off) {
            o.scheduler.schedule.max_concurrent = 1;
        }
        o.enabled = self.enabled();
        put(&mut o.scheduler.schedule.max_consecutive_errors, self.max_consecutive_errors);
        o
    }
}

fn parse(text: &str, file: &Path) -> Result<Given, Failure> {
    toml::from_str(text).map_err(|e| {
        let told = e.to_string();
        // The rest of the parser's message is a list of all settings, which is too long.
        let told = told.split_once(", expected one of `").map_or(told.as_str(), |(told, _)| told);
        let near = misspelt(text).map(|near| format!("Did you mean {near}? ")).unwrap_or_default();
        Failure::input(format!("cannot understand {}: {}", file.display(), told.trim_end()))
            .hint(format!("{near}{LISTED}"))
    })
}

/// Returns the setting nearest to the first unknown key of a file.
fn misspelt(text: &str) -> Option<String> {
    let command = <Given as clap::Args>::augment_args(clap::Command::new("settings"));
    let names: Vec<&str> = command.get_arguments().map(|a| a.get_id().as_str()).collect();
    let keys = toml::from_str::<toml::Table>(text).ok()?;
    let wrong = keys.keys().find(|k| !names.contains(&k.as_str()))?;
    nearest(wrong, names.into_iter()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_goes_over_the_file_and_the_file_over_the_default() {
        let file =
            "load_connections = 2\nload_bytes = 7\nrefresh_strategy = \"full\"\ncdc_trigger_mode = \"row\"";
        let file = parse(file, Path::new(FILE)).unwrap();
        let flags = Given { load_connections: Some(3), ..Given::default() };
        let s = flags.or(file).settings();
        let expected = (3, 7, Some(Force::Full), Mode::Row, Settings::default().segment_bytes);
        assert_eq!((s.load_connections, s.load_bytes, s.force, s.capture.mode, s.segment_bytes), expected);
        assert_eq!(Given::default().settings(), Settings::default());
        let one = "max_concurrent_refreshes = 8\nparallel_refresh_mode = \"off\"\nmerge_work_mem_mb = 64\nenabled = false";
        let one = parse(one, Path::new(FILE)).unwrap().daemon();
        let found = (one.scheduler.schedule.max_concurrent, one.enabled, one.settings.merge_work_mem_mb);
        assert_eq!(found, (1, false, Some(64)));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let e = parse("load_bytes = 1\nmax_delta_row = 5", Path::new(FILE)).unwrap_err().render(false);
        assert!(e.contains("max_delta_row`") && e.contains("Did you mean max_delta_rows?"), "{e}");
        assert!(!e.contains("segment_bytes"), "{e}");
        for wrong in ["nonsense = 1", "load_bytes = -1", "load_bytes = \"much\"", "cdc_mode = \"log\""] {
            let e = parse(wrong, Path::new(FILE)).unwrap_err().render(false);
            assert!(e.contains(FILE) && e.contains("1 |"), "{e}");
        }
        for wrong in [
            "load_connections = 0",
            "long_transaction_seconds = 0",
            "cdc_mode = \"wal\"",
            "differential_max_change_ratio = 2.0",
            "min_schedule_seconds = 0",
            "merge_work_mem_mb = 2097152",
            "merge_work_mem_max_mb = 2097152",
            "merge_work_mem_mb = 64\nmerge_work_mem_max_mb = 63",
            "metrics_hosts = [\"board:9187\"]",
        ] {
            assert!(parse(wrong, Path::new(FILE)).unwrap().check().is_err(), "{wrong}");
        }
    }
}
