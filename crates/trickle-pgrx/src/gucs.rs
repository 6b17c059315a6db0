//! The settings of the extension, which the server knows under the prefix `pg_trickle`, and the engine's
//! options that follow from them.

use crate::unsafe_pg::{ServerConnection, is_wait_limited};
use pgrx::guc::{GucContext, GucFlags, GucRegistry, GucSetting};
use pgrx::prelude::*;
use std::ffi::CStr;
use std::time::Duration;
use trickle_core::cdc::Mode;
use trickle_core::cost::Force;
use trickle_engine::Settings;
use trickle_engine::capture::CaptureOptions;
use trickle_engine::locks::Patience;
use trickle_engine::scheduler::SchedulerOptions;

/// Values of the setting `pg_trickle.refresh_strategy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PostgresGucEnum)]
enum Strategy {
    #[name = c"auto"]
    Auto,
    #[name = c"differential"]
    Differential,
    #[name = c"full"]
    Full,
}

/// Values of the setting `pg_trickle.cdc_trigger_mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PostgresGucEnum)]
enum TriggerMode {
    #[name = c"statement"]
    Statement,
    #[name = c"row"]
    Row,
}

/// Values of the setting `pg_trickle.parallel_refresh_mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PostgresGucEnum)]
enum Parallel {
    #[name = c"on"]
    On,
    #[name = c"off"]
    Off,
}

/// Values of the setting `pg_trickle.cdc_mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PostgresGucEnum)]
enum Capture {
    #[name = c"auto"]
    Auto,
    #[name = c"trigger"]
    Trigger,
    #[name = c"wal"]
    Wal,
}

static ENABLED: GucSetting<bool> = GucSetting::<bool>::new(true);
static INTERVAL: GucSetting<i32> = GucSetting::<i32>::new(1000);
static MAX_CONCURRENT: GucSetting<i32> = GucSetting::<i32>::new(4);
static PARALLEL: GucSetting<Parallel> = GucSetting::<Parallel>::new(Parallel::On);
static CAPTURE: GucSetting<Capture> = GucSetting::<Capture>::new(Capture::Auto);
static MIN_SCHEDULE: GucSetting<f64> = GucSetting::<f64>::new(0.01);
static STRATEGY: GucSetting<Strategy> = GucSetting::<Strategy>::new(Strategy::Auto);
static TRIGGER_MODE: GucSetting<TriggerMode> = GucSetting::<TriggerMode>::new(TriggerMode::Statement);
static PREPARED: GucSetting<bool> = GucSetting::<bool>::new(true);
static NATIVE: GucSetting<bool> = GucSetting::<bool>::new(true);
static UNLOGGED: GucSetting<bool> = GucSetting::<bool>::new(false);
static MAX_CHANGE_RATIO: GucSetting<f64> = GucSetting::<f64>::new(0.0);
static MAX_DELTA_ROWS: GucSetting<i32> = GucSetting::<i32>::new(0);
static WORK_MEM: GucSetting<i32> = GucSetting::<i32>::new(0);
static STATEMENT_TIMEOUT: GucSetting<i32> = GucSetting::<i32>::new(0);
static MAX_WORK_MEM: GucSetting<i32> = GucSetting::<i32>::new(0);
static MAX_ERRORS: GucSetting<i32> = GucSetting::<i32>::new(5);
static RETENTION: GucSetting<i32> = GucSetting::<i32>::new(30);
static LONG: GucSetting<i32> = GucSetting::<i32>::new(300);
static GIVE_WAY: GucSetting<i32> = GucSetting::<i32>::new(1000);
static SEGMENT: GucSetting<i32> = GucSetting::<i32>::new(512 << 10);

/// An integer setting: its name, descriptions, least and greatest value, and the context that decides which
/// roles may set it.
struct IntegerSetting {
    name: &'static CStr,
    short: &'static CStr,
    long: &'static CStr,
    setting: &'static GucSetting<i32>,
    range: (i32, i32),
    context: GucContext,
}

const NUMBERS: [IntegerSetting; 11] = [
    IntegerSetting {
        name: c"pg_trickle.scheduler_interval_ms",
        short: c"Interval at which new stream tables are looked for, in milliseconds.",
        long: c"Schedules are kept between these looks, too.",
        setting: &INTERVAL,
        range: (10, 3_600_000),
        context: GucContext::Sighup,
    },
    IntegerSetting {
        name: c"pg_trickle.max_concurrent_refreshes",
        short: c"Greatest number of groups of linked stream tables that are refreshed at a time in a database.",
        long: c"Each group takes a process of max_worker_processes; without a free one, groups are refreshed one after the other.",
        setting: &MAX_CONCURRENT,
        range: (1, 64),
        context: GucContext::Sighup,
    },
    IntegerSetting {
        name: c"pg_trickle.max_delta_rows",
        short: c"Number of changed rows above which a stream table is recomputed.",
        long: c"0 is no limit.",
        setting: &MAX_DELTA_ROWS,
        range: (0, i32::MAX),
        context: GucContext::Userset,
    },
    IntegerSetting {
        name: c"pg_trickle.statement_timeout_ms",
        short: c"Longest time of a statement of a refresh on schedule, in milliseconds.",
        long: c"0 is no limit. A refresh that a session asks for has the statement_timeout of that session.",
        setting: &STATEMENT_TIMEOUT,
        range: (0, i32::MAX),
        context: GucContext::Sighup,
    },
    IntegerSetting {
        name: c"pg_trickle.merge_work_mem_mb",
        short: c"Least work_mem of a refresh, in MiB.",
        long: c"0: the work_mem of the server, or 4 MiB if pg_trickle.merge_work_mem_max_mb is set.",
        setting: &WORK_MEM,
        range: (0, 1 << 20),
        context: GucContext::Userset,
    },
    IntegerSetting {
        name: c"pg_trickle.merge_work_mem_max_mb",
        short: c"Greatest work_mem of a refresh that has many rows to sort or hash, in MiB.",
        long: c"0: all refreshes get pg_trickle.merge_work_mem_mb.",
        setting: &MAX_WORK_MEM,
        range: (0, 1 << 20),
        context: GucContext::Userset,
    },
    IntegerSetting {
        name: c"pg_trickle.max_consecutive_errors",
        short: c"Number of failed refreshes in a row after which a stream table is suspended.",
        long: c"0 is never.",
        setting: &MAX_ERRORS,
        range: (0, 1000),
        context: GucContext::Userset,
    },
    IntegerSetting {
        name: c"pg_trickle.history_retention_days",
        short: c"Age after which a row of the history of refreshes is deleted, in days.",
        long: c"0 is never.",
        setting: &RETENTION,
        range: (0, 36_500),
        context: GucContext::Userset,
    },
    IntegerSetting {
        name: c"pg_trickle.give_way_ms",
        short: c"Time for which a refresh on schedule keeps another session waiting that asks for an ACCESS EXCLUSIVE lock, in milliseconds.",
        long: c"After this time the refresh gives way, and begins again when that session is done. 0: the refresh never gives way.",
        setting: &GIVE_WAY,
        range: (0, i32::MAX),
        context: GucContext::Sighup,
    },
    IntegerSetting {
        name: c"pg_trickle.long_transaction_seconds",
        short: c"Age at which an open transaction is reported, in seconds.",
        long: c"While a transaction is open, old rows of stream tables and applied changes cannot be removed.",
        setting: &LONG,
        range: (1, i32::MAX),
        context: GucContext::Userset,
    },
    IntegerSetting {
        name: c"pg_trickle.segment_bytes",
        short: c"Size in bytes at which a segment of a change buffer is emptied, or closed to be emptied.",
        long: c"The refreshes of the readers empty it.",
        setting: &SEGMENT,
        range: (1, i32::MAX),
        context: GucContext::Userset,
    },
];

/// Registers the settings with the server.
#[expect(clippy::too_many_lines, reason = "one call for each setting")]
pub(crate) fn define() {
    let flags = GucFlags::default();
    GucRegistry::define_bool_guc(
        c"pg_trickle.enabled",
        c"Whether the server refreshes stream tables on schedule.",
        c"It needs the library among shared_preload_libraries.",
        &ENABLED,
        GucContext::Sighup,
        flags,
    );
    GucRegistry::define_bool_guc(
        c"pg_trickle.change_buffer_unlogged",
        c"Whether new change buffers are unlogged tables, without WAL.",
        c"After a crash of the server their readers are recomputed.",
        &UNLOGGED,
        GucContext::Userset,
        flags,
    );
    GucRegistry::define_bool_guc(
        c"pg_trickle.native_capture",
        c"Whether statement triggers on tables that no stream table reads yet copy rows in C.",
        c"off: they run a statement in PL/pgSQL, as the triggers of the program do.",
        &NATIVE,
        GucContext::Userset,
        flags,
    );
    GucRegistry::define_bool_guc(
        c"pg_trickle.use_prepared_statements",
        c"Whether each process keeps repeated statements prepared.",
        c"A process keeps 200 statements at most.",
        &PREPARED,
        GucContext::Userset,
        flags,
    );
    GucRegistry::define_enum_guc(
        c"pg_trickle.refresh_strategy",
        c"How stream tables are refreshed.",
        c"auto chooses by the measured cost of refreshes; differential and full force that strategy where it is available.",
        &STRATEGY,
        GucContext::Userset,
        flags,
    );
    GucRegistry::define_enum_guc(
        c"pg_trickle.parallel_refresh_mode",
        c"Whether groups of linked stream tables are refreshed side by side.",
        c"off: they are refreshed one after the other.",
        &PARALLEL,
        GucContext::Sighup,
        flags,
    );
    GucRegistry::define_enum_guc(
        c"pg_trickle.cdc_mode",
        c"How changes are captured.",
        c"auto and trigger: by triggers. wal is not built yet, and every command that would capture refuses it.",
        &CAPTURE,
        GucContext::Userset,
        flags,
    );
    GucRegistry::define_enum_guc(
        c"pg_trickle.cdc_trigger_mode",
        c"How changes of tables that no stream table reads yet are captured.",
        c"By statement triggers, or by row triggers.",
        &TRIGGER_MODE,
        GucContext::Userset,
        flags,
    );
    GucRegistry::define_float_guc(
        c"pg_trickle.differential_max_change_ratio",
        c"Ratio of changed rows to source rows above which a stream table is recomputed.",
        c"0 leaves the choice to the measured cost of refreshes.",
        &MAX_CHANGE_RATIO,
        0.0,
        1.0,
        GucContext::Userset,
        flags,
    );
    GucRegistry::define_float_guc(
        c"pg_trickle.min_schedule_seconds",
        c"The shortest period of a schedule, in seconds.",
        c"Shorter periods count as this one.",
        &MIN_SCHEDULE,
        0.001,
        86_400.0,
        GucContext::Sighup,
        flags,
    );
    for n in NUMBERS {
        let (least, most) = n.range;
        GucRegistry::define_int_guc(n.name, n.short, n.long, n.setting, least, most, n.context, flags);
    }
}

/// Whether the server refreshes on schedule.
pub(crate) fn is_enabled() -> bool {
    ENABLED.get()
}

/// Whether repeated statements are kept prepared.
pub(crate) fn keeps_prepared() -> bool {
    PREPARED.get()
}

/// Whether the setting asks for capture from the WAL.
pub(crate) fn is_wal_wanted() -> bool {
    CAPTURE.get() == Capture::Wal
}

/// Returns the greatest time that a statement of a refresh on schedule may take, in milliseconds; 0 means no
/// limit.
pub(crate) fn statement_timeout_ms() -> i32 {
    STATEMENT_TIMEOUT.get()
}

/// Returns the time after which a refresh gives way to a session that waits for an exclusive lock on one of
/// its tables. 0 means no limit.
pub(crate) fn give_way() -> Duration {
    Duration::from_millis(u64::try_from(GIVE_WAY.get()).unwrap_or_default())
}

/// Returns the number of groups of linked stream tables that are refreshed at the same time.
pub(crate) fn max_concurrent() -> usize {
    match PARALLEL.get() {
        Parallel::On => usize::try_from(MAX_CONCURRENT.get()).unwrap_or(1),
        Parallel::Off => 1,
    }
}

/// Returns the options of a scheduler.
pub(crate) fn scheduler() -> SchedulerOptions {
    let positive = |n: i32| u64::try_from(n).unwrap_or_default();
    let mut o = SchedulerOptions {
        reload: Duration::from_millis(positive(INTERVAL.get())),
        ..SchedulerOptions::default()
    };
    o.schedule.max_concurrent = max_concurrent();
    o.schedule.min_period = Duration::try_from_secs_f64(MIN_SCHEDULE.get()).unwrap_or_default();
    o.schedule.max_consecutive_errors = u32::try_from(MAX_ERRORS.get()).unwrap_or_default();
    o
}

/// Returns the engine's settings for a process that refreshes on schedule. Such a process holds no locks of a
/// user's transaction. So it can wait for a lock in several tries, between which other sessions can go first.
pub(crate) fn of_workers() -> Settings {
    Settings { patience: Patience::default(), ..settings() }
}

/// Returns the engine's settings for a call of the SQL API. While a statement that is a transaction of its
/// own waits, it holds no lock that other sessions want. So the statement lets other sessions go first, as a
/// worker does. A session that sets lock_timeout has chosen the time after which a wait fails.
pub(crate) fn of_calls() -> Settings {
    match ServerConnection::is_brief() && !is_wait_limited() {
        true => of_workers(),
        false => settings(),
    }
}

/// Returns the engine's settings that are in force.
pub(crate) fn settings() -> Settings {
    let some = |n: i32| u32::try_from(n).ok().filter(|n| *n > 0);
    Settings {
        // A call that waits for a lock holds all locks of its transaction. The server's deadlock detection
        // and lock_timeout end the wait; another try in the same transaction does not help.
        patience: Patience { lock_timeout: Duration::ZERO, attempts: 1, pause: Duration::ZERO },
        capture: CaptureOptions {
            mode: match TRIGGER_MODE.get() {
                TriggerMode::Row => Mode::Row,
                TriggerMode::Statement if NATIVE.get() => Mode::Copy,
                TriggerMode::Statement => Mode::Statement,
            },
            unlogged: UNLOGGED.get(),
        },
        force: match STRATEGY.get() {
            Strategy::Auto => None,
            Strategy::Differential => Some(Force::Incremental),
            Strategy::Full => Some(Force::Full),
        },
        max_change_ratio: Some(MAX_CHANGE_RATIO.get()).filter(|r| *r > 0.0),
        max_delta_rows: some(MAX_DELTA_ROWS.get()).map(u64::from),
        merge_work_mem_mb: some(WORK_MEM.get()),
        merge_work_mem_max_mb: some(MAX_WORK_MEM.get()),
        max_consecutive_errors: some(MAX_ERRORS.get()).unwrap_or(0),
        history_retention_days: some(RETENTION.get()).unwrap_or(0),
        long_transaction: Duration::from_secs(some(LONG.get()).map_or(300, u64::from)),
        segment_bytes: i64::from(SEGMENT.get()),
        use_prepared_statements: false,
        load_connections: 1,
        ..Settings::default()
    }
}
