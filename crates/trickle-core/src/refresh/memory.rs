//! The memory for the sorts and hash tables of a refresh.

use super::Setting;
use crate::cost::{Inputs, Strategy};

/// The bytes that a row takes in a sort or a hash table, overhead included. The guess is generous, since
/// spilling to disk costs more than unused memory.
const ROW_BYTES: u64 = 1024;

/// PostgreSQL's default `work_mem`, in MiB.
const DEFAULT_MB: u32 = 4;

/// The range from which `work_mem` of a refresh is chosen, in MiB. The chosen value affects how a refresh is
/// computed, never its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkMem {
    least_mb: u32,
    most_mb: u32,
}

impl WorkMem {
    /// Makes the range from the memory of small refreshes (`least_mb`) to the memory of large refreshes
    /// (`most_mb`). With `least_mb` alone, all refreshes get the same memory. With `most_mb` alone, the range
    /// begins at PostgreSQL's default. Where `most_mb` is less than `least_mb`, all refreshes get `most_mb`.
    pub fn between(least_mb: Option<u32>, most_mb: Option<u32>) -> Option<WorkMem> {
        let most_mb = most_mb.or(least_mb)?;
        Some(WorkMem { least_mb: least_mb.unwrap_or(DEFAULT_MB).min(most_mb), most_mb })
    }

    /// Returns the memory, in MiB, for a refresh with these inputs. The memory is the amount that the rows of
    /// the refresh would take, limited to the range. More rows never get less memory. A delta sorts and
    /// hashes the changes and the rows that join them. A recompute sorts and hashes the sources and the
    /// result.
    pub fn mb(&self, strategy: Strategy, inputs: &Inputs) -> u32 {
        let rows = match strategy.is_incremental() {
            true => inputs.delta_rows,
            false => inputs.source_rows.saturating_add(inputs.result_rows),
        };
        let needed = rows.saturating_mul(ROW_BYTES).div_ceil(1 << 20);
        u32::try_from(needed).unwrap_or(u32::MAX).clamp(self.least_mb, self.most_mb)
    }

    pub(super) fn setting(&self, strategy: Strategy, inputs: &Inputs) -> Setting {
        Setting { name: "work_mem".into(), values: vec![format!("{}MB", self.mb(strategy, inputs))] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(delta_rows: u64) -> Inputs {
        Inputs { delta_rows, source_rows: 1 << 20, result_rows: 0 }
    }

    #[test]
    fn memory_follows_the_rows_between_its_bounds() {
        let both = WorkMem::between(Some(8), Some(64)).unwrap();
        let got = [0, 1 << 10, 9 << 10, 32 << 10, u64::MAX].map(|n| both.mb(Strategy::Delta, &changed(n)));
        assert_eq!(got, [8, 8, 9, 32, 64]);
        assert_eq!(both.mb(Strategy::Full, &changed(1)), 64, "a full refresh reads all of the sources");
    }

    #[test]
    fn one_bound_is_enough() {
        let mb = |least, most, n| WorkMem::between(least, most).map(|w| w.mb(Strategy::Delta, &changed(n)));
        assert_eq!(mb(None, None, 1), None);
        assert_eq!((mb(Some(16), None, 1), mb(Some(16), None, u64::MAX)), (Some(16), Some(16)));
        assert_eq!((mb(None, Some(64), 1), mb(None, Some(64), u64::MAX)), (Some(4), Some(64)));
        assert_eq!(mb(Some(64), Some(2), 1), Some(2));
    }
}
