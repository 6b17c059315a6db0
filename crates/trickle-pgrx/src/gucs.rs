//! The settings of the extension.

use crate::unsafe_pg::{Inside, is_wait_limited};
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

/// An integer setting: its name, descriptions, least and greatest value, and who may set it.
struct Number {
    name: &'static CStr,
    short: &'static CStr,
    long: &'static CStr,
    setting: &'static GucSetting<i32>,
    range: (i32, i32),
    context: GucContext,
}

const NUMBERS: [Number; 11] = [
    Number {
        name: c"pg_trickle.scheduler_interval_ms",
        short: c"How often to look for new stream tables, in milliseconds.",
        long: c"Schedules are kept between these times too.",
        setting: &INTERVAL,
        range: (10, 3_600_000),
        context: GucContext::Sighup,
    },
    Number {
        name: c"pg_trickle.max_concurrent_refreshes",
        short: c"How many groups of linked stream tables are refreshed at a time in a database.",
        long: c"Each takes a process of max_worker_processes; where there is none, one is refreshed after the other.",
        setting: &MAX_CONCURRENT,
        range: (1, 64),
        context: GucContext::Sighup,
    },
    Number {
        name: c"pg_trickle.max_delta_rows",
        short: c"Above this many changed rows stream tables are computed anew.",
        long: c"0 for no such limit.",
        setting: &MAX_DELTA_ROWS,
        range: (0, i32::MAX),
        context: GucContext::Userset,
    },
    Number {
        name: c"pg_trickle.statement_timeout_ms",
        short: c"How long a statement of a refresh on schedule may take, in milliseconds.",
        long: c"0 for as long as it takes. Refreshes that a session asks for have the statement_timeout of that session.",
        setting: &STATEMENT_TIMEOUT,
        range: (0, i32::MAX),
        context: GucContext::Sighup,
    },
    Number {
        name: c"pg_trickle.merge_work_mem_mb",
        short: c"The least work_mem of a refresh, in MiB.",
        long: c"0 leaves the server's.",
        setting: &WORK_MEM,
        range: (0, 1 << 20),
        context: GucContext::Userset,
    },
    Number {
        name: c"pg_trickle.merge_work_mem_max_mb",
        short: c"The most work_mem of a refresh that has many rows to sort and hash, in MiB.",
        long: c"0 leaves the server's.",
        setting: &MAX_WORK_MEM,
        range: (0, 1 << 20),
        context: GucContext::Userset,
    },
    Number {
        name: c"pg_trickle.max_consecutive_errors",
        short: c"Failed refreshes in a row after which a stream table is suspended.",
        long: c"0 for never.",
        setting: &MAX_ERRORS,
        range: (0, 1000),
        context: GucContext::Userset,
    },
    Number {
        name: c"pg_trickle.history_retention_days",
        short: c"How long the history of refreshes is kept, in days.",
        long: c"0 keeps it for ever.",
        setting: &RETENTION,
        range: (0, 36_500),
        context: GucContext::Userset,
    },
    Number {
        name: c"pg_trickle.give_way_ms",
        short: c"How long somebody who wants a table for himself waits for a refresh on schedule that reads it, in milliseconds.",
        long: c"The refresh gives way then, and begins again after him. 0: he waits for as long as it takes.",
        setting: &GIVE_WAY,
        range: (0, i32::MAX),
        context: GucContext::Sighup,
    },
    Number {
        name: c"pg_trickle.long_transaction_seconds",
        short: c"From when on an open transaction is told, in seconds.",
        long: c"While it is open, old rows of stream tables and changes that were applied cannot be removed.",
        setting: &LONG,
        range: (1, i32::MAX),
        context: GucContext::Userset,
    },
    Number {
        name: c"pg_trickle.segment_bytes",
        short: c"A part of a change buffer that has grown to this many bytes is emptied, or closed to be emptied.",
        long: c"By the refreshes of whoever reads it.",
        setting: &SEGMENT,
        range: (1, i32::MAX),
        context: GucContext::Userset,
    },
];

/// Registers the settings with the server.
pub(crate) fn define() {
    let flags = GucFlags::default();
    GucRegistry::define_bool_guc(
        c"pg_trickle.enabled",
        c"Whether the server refreshes stream tables on schedule.",
        c"It does so where the library is among shared_preload_libraries.",
        &ENABLED,
        GucContext::Sighup,
        flags,
    );
    GucRegistry::define_bool_guc(
        c"pg_trickle.change_buffer_unlogged",
        c"Whether new change buffers are without WAL.",
        c"A crash of the server then has their readers recomputed.",
        &UNLOGGED,
        GucContext::Userset,
        flags,
    );
    GucRegistry::define_bool_guc(
        c"pg_trickle.native_capture",
        c"Whether triggers for statements copy rows by themselves, of tables that no stream table reads yet.",
        c"off: by a statement in PL/pgSQL, as the program has them.",
        &NATIVE,
        GucContext::Userset,
        flags,
    );
    GucRegistry::define_bool_guc(
        c"pg_trickle.use_prepared_statements",
        c"Whether each process keeps the statements prepared that come again.",
        c"It keeps up to 200.",
        &PREPARED,
        GucContext::Userset,
        flags,
    );
    GucRegistry::define_enum_guc(
        c"pg_trickle.refresh_strategy",
        c"How stream tables are refreshed.",
        c"auto leaves it to what refreshes have cost; differential and full force one way where there is it.",
        &STRATEGY,
        GucContext::Userset,
        flags,
    );
    GucRegistry::define_enum_guc(
        c"pg_trickle.parallel_refresh_mode",
        c"Whether groups of linked stream tables are refreshed side by side.",
        c"off: one after the other.",
        &PARALLEL,
        GucContext::Sighup,
        flags,
    );
    GucRegistry::define_enum_guc(
        c"pg_trickle.cdc_mode",
        c"How changes are captured.",
        c"auto and trigger: by triggers. wal is refused by whatever would capture: it is not built yet.",
        &CAPTURE,
        GucContext::Userset,
        flags,
    );
    GucRegistry::define_enum_guc(
        c"pg_trickle.cdc_trigger_mode",
        c"How changes are captured of tables that no stream table reads yet.",
        c"By one trigger for each statement, or for each row.",
        &TRIGGER_MODE,
        GucContext::Userset,
        flags,
    );
    GucRegistry::define_float_guc(
        c"pg_trickle.differential_max_change_ratio",
        c"Above this ratio of changed rows to source rows stream tables are computed anew.",
        c"0 leaves that to what refreshes have cost.",
        &MAX_CHANGE_RATIO,
        0.0,
        1.0,
        GucContext::Userset,
        flags,
    );
    GucRegistry::define_float_guc(
        c"pg_trickle.min_schedule_seconds",
        c"The shortest period of a schedule, in seconds.",
        c"Shorter ones count as this.",
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

/// Returns how long a statement of a refresh on schedule may take, in milliseconds; 0 means no limit.
pub(crate) fn statement_timeout_ms() -> i32 {
    STATEMENT_TIMEOUT.get()
}

/// Returns how long a session that wants a table exclusively waits for a refresh that reads it, before that
/// refresh gives way; 0 means no limit.
pub(crate) fn give_way() -> Duration {
    Duration::from_millis(u64::try_from(GIVE_WAY.get()).unwrap_or_default())
}

/// Returns how many groups of linked stream tables are refreshed at the same time.
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
/// user's transaction, so it can wait for a lock in several tries, and others can go first between them.
pub(crate) fn of_workers() -> Settings {
    Settings { patience: Patience::default(), ..settings() }
}

/// Returns the engine's settings for a call of the SQL API. A statement that is a transaction of its own
/// holds no lock that others want while it waits, so it lets them go first, as a worker does. A session that
/// sets lock_timeout has chosen how long to wait, and to fail then.
pub(crate) fn of_calls() -> Settings {
    match Inside::is_brief() && !is_wait_limited() {
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
