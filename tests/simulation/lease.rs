//! The lease that decides which of several refreshers may act. The lease is a row with a holder, an expiry by
//! the database's clock, and a number that grows with each new holder. This module has only the arithmetic of
//! the lease, so that another arithmetic can replace it.

/// The row of the lease.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Lease {
    holder: Option<usize>,
    expires: i64,
    fence: u64,
}

impl Lease {
    /// Takes or renews the lease for `term` milliseconds of the database's clock. Returns the number of the
    /// lease. Returns `None` if another refresher has the lease.
    pub(crate) fn take(&mut self, who: usize, now: i64, term: i64) -> Option<u64> {
        if self.holder == Some(who) && now < self.expires {
            self.expires = now + term;
        } else if self.holder.is_none() || now >= self.expires {
            *self = Lease { holder: Some(who), expires: now + term, fence: self.fence + 1 };
        }
        (self.holder == Some(who)).then_some(self.fence)
    }

    /// Whether a refresher that acts under this number may still commit. A refresher may commit while no
    /// other refresher has taken the lease.
    pub(crate) fn admits(&self, fence: u64) -> bool {
        self.fence == fence
    }
}
