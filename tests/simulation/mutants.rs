//! Wrong schedulers, frontiers and protocols. The simulation must notice every one.

/// One way to get it wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutant {
    /// The frontier is stored as "all below xmax".
    FrontierIsXmax,
    /// The frontier does not count what the refresh itself wrote.
    OwnForgotten,
    /// The frontier counts all of a transaction in which it was refreshed, also what comes after.
    OwnCountedWhole,
    /// Readers are refreshed before what they read.
    DownstreamFirst,
    /// Buffers are read under a later snapshot than the one that is stored.
    WindowLater,
    /// Sources are read under a later snapshot than their buffers.
    ReadLater,
    /// No lock keeps refreshes apart, the snapshot is taken early, and nobody checks who wrote last.
    NoMutualExclusion,
    /// What a rolled back refresh fed to its readers stays.
    AbortedFeedsStay,
    /// A replacement does not tell its readers in other groups.
    ReplacedUntold,
    /// A buffer is emptied as soon as one reader has counted it.
    DrainedByOneReader,
    /// A buffer is emptied under a reader that is being rebuilt.
    DrainIgnoresRebuilds,
    /// Whoever lost the lease may commit.
    NoFence,
    /// A reader does not wait for what it reads in other groups.
    ReaderDoesNotWait,
    /// No wait after an error.
    NoBackoff,
    /// Waits after errors that know no cap.
    EndlessBackoff,
    /// Missed runs are made up for, one by one.
    MissedRunsQueued,
    /// More run at a time than allowed.
    NoLimit,
    /// The least group comes first, however long others have waited.
    LeastGroupFirst,
    /// What is suspended is refreshed.
    SuspensionIgnored,
    /// Waiting for a lock counts as an error.
    BusyIsAnError,
    /// What found somebody in its way is tried again when its next time comes.
    LaterIsAPeriodLater,
    /// What runs is started again.
    RunningIgnored,
    /// What is due is refreshed whether or not anything changed.
    NoLook,
    /// What started in the future, as the clock has it now, is not started before that comes.
    FutureWaited,
    /// What a refresh took is read from a clock that is set meanwhile.
    ClockMeasures,
    /// What a refresher last started is what counts, though it failed to start it.
    StartedWithoutRefresh,
    /// Always the dearest way.
    DearestWay,
}

/// All of them.
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
