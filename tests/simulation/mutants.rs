//! Wrong schedulers, frontiers and protocols. The simulation must notice each of them.

/// One fault that is put into the scheduler, the frontier or the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutant {
    /// The frontier is stored as "all below xmax".
    FrontierIsXmax,
    /// The frontier does not count the refresh's own writes.
    OwnForgotten,
    /// The frontier counts the whole transaction in which the refresh ran, even its later commands.
    OwnCountedWhole,
    /// Readers are refreshed before their sources.
    DownstreamFirst,
    /// Buffers are read under a later snapshot than the stored one.
    WindowLater,
    /// Sources are read under a later snapshot than their buffers.
    ReadLater,
    /// No lock keeps refreshes apart, the snapshot is taken early, and the last writer is not checked.
    NoMutualExclusion,
    /// Changes that a refresh wrote for its readers stay although the refresh was rolled back.
    AbortedFeedsStay,
    /// A full refresh that replaces a table leaves no mark for the readers in other groups.
    ReplacedUntold,
    /// A buffer is emptied as soon as one reader has counted it.
    DrainedByOneReader,
    /// A buffer is emptied although a reader is being recomputed.
    DrainIgnoresRebuilds,
    /// A refresher that lost the lease may commit.
    NoFence,
    /// A reader does not wait for its sources in other groups.
    ReaderDoesNotWait,
    /// There is no wait after an error.
    NoBackoff,
    /// Waits after errors grow without a cap.
    EndlessBackoff,
    /// A refresher that missed several runs does all of them later, one by one.
    MissedRunsQueued,
    /// More refreshes run at a time than are allowed.
    NoLimit,
    /// The group with the least number comes first, however long others have waited.
    LeastGroupFirst,
    /// Suspended stream tables are refreshed.
    SuspensionIgnored,
    /// Waiting for a lock counts as an error.
    BusyIsAnError,
    /// A refresh that met a lock of another session is tried again only at its next scheduled time.
    LaterIsAPeriodLater,
    /// A running refresh is started again.
    RunningIgnored,
    /// Due stream tables are refreshed whether or not anything changed.
    NoLook,
    /// After the clock was set back, the last start of a stream table lies in the future. The stream table is
    /// not started again before that time.
    FutureWaited,
    /// Durations of refreshes are read from a clock that can be set in the meantime.
    ClockMeasures,
    /// A refresher counts a refresh as started although it failed to start the refresh.
    StartedWithoutRefresh,
    /// The strategy with the greatest cost is always chosen.
    DearestWay,
}

/// All mutants.
pub(crate) const MUTANTS: &[Mutant] = &[
    Mutant::FrontierIsXmax,
    Mutant::OwnForgotten,
    Mutant::OwnCountedWhole,
    Mutant::DownstreamFirst,
    Mutant::WindowLater,
    Mutant::ReadLater,
    Mutant::NoMutualExclusion,
    Mutant::AbortedFeedsStay,
    Mutant::ReplacedUntold,
    Mutant::DrainedByOneReader,
    Mutant::DrainIgnoresRebuilds,
    Mutant::NoFence,
    Mutant::ReaderDoesNotWait,
    Mutant::NoBackoff,
    Mutant::EndlessBackoff,
    Mutant::MissedRunsQueued,
    Mutant::NoLimit,
    Mutant::LeastGroupFirst,
    Mutant::SuspensionIgnored,
    Mutant::BusyIsAnError,
    Mutant::LaterIsAPeriodLater,
    Mutant::RunningIgnored,
    Mutant::NoLook,
    Mutant::FutureWaited,
    Mutant::ClockMeasures,
    Mutant::StartedWithoutRefresh,
    Mutant::DearestWay,
];
