//! The lease that decides which of several refreshers may act: a row with a holder, an expiry by the
//! database's clock, and a number that grows with each new holder. The arithmetic stands here alone, so that
//! another can replace it.

/// The row of the lease.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Lease {
    holder: Option<usize>,
    expires: i64,
    fence: u64,
}

impl Lease {
    /// Takes or renews the lease for `term` milliseconds of the database's clock. Returns the fencing number,
    /// or `None` if another refresher has the lease.
    pub(crate) fn take(&mut self, who: usize, now: i64, term: i64) -> Option<u64> {
        if self.holder == Some(who) && now < self.expires {
            self.expires = now + term;
        } else if self.holder.is_none() || now >= self.expires {
            *self = Lease { holder: Some(who), expires: now + term, fence: self.fence + 1 };
        }
        (self.holder == Some(who)).then_some(self.fence)
    }

    /// Whether a refresher that acts under this number may still commit: no other has taken the lease since.
    pub(crate) fn admits(&self, fence: u64) -> bool {
        self.fence == fence
    }
}
