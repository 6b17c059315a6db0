//! Wrong schedulers, frontiers and protocols. The simulation must notice every one.

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
    /// Changes that a rolled back refresh fed to its readers stay.
    AbortedFeedsStay,
    /// A full refresh that replaces a table does not tell the readers in other groups.
    ReplacedUntold,
    /// A buffer is emptied as soon as one reader has counted it.
    DrainedByOneReader,
    /// A buffer is emptied under a reader that is being rebuilt.
    DrainIgnoresRebuilds,
    /// A refresher that lost the lease may commit.
    NoFence,
    /// A reader does not wait for its sources in other groups.
    ReaderDoesNotWait,
    /// There is no wait after an error.
    NoBackoff,
    /// Waits after errors grow without a cap.
    EndlessBackoff,
    /// Missed runs are made up for, one by one.
    MissedRunsQueued,
    /// More refreshes run at a time than are allowed.
    NoLimit,
    /// The group with the least number comes first, however long others have waited.
    LeastGroupFirst,
    /// Suspended stream tables are refreshed.
    SuspensionIgnored,
    /// Waiting for a lock counts as an error.
    BusyIsAnError,
    /// A refresh that found another session in its way is tried again only at its next scheduled time.
    LaterIsAPeriodLater,
    /// A running refresh is started again.
    RunningIgnored,
    /// Due stream tables are refreshed whether or not anything changed.
    NoLook,
    /// A stream table whose last start lies in the future of a clock that was set back is not started before
    /// that time.
    FutureWaited,
    /// Durations of refreshes are read from a clock that can be set meanwhile.
    ClockMeasures,
    /// A refresher counts a refresh as started though it failed to start it.
    StartedWithoutRefresh,
    /// The dearest strategy is always chosen.
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
