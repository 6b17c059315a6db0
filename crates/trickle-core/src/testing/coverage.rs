//! Counts of pairs of operators: the first operator reads the second, whose rows changed.

use crate::graph::{Graph, NodeId};
use std::collections::BTreeMap;
use std::fmt;

/// Counts of pairs: an operator, and an operator that it reads and whose rows changed.
#[derive(Clone, Debug, Default)]
pub struct Coverage {
    counts: BTreeMap<(&'static str, &'static str), u64>,
}

impl Coverage {
    /// Counts those edges of the plan under `root` for which `changed` is true of the lower node.
    pub fn record(&mut self, graph: &Graph, root: NodeId, changed: impl Fn(NodeId) -> bool) {
        for id in graph.reachable(root) {
            for input in graph.inputs(id).iter().copied() {
                if changed(input) {
                    *self
                        .counts
                        .entry((graph.node(id).op().name(), graph.node(input).op().name()))
                        .or_default() += 1;
                }
            }
        }
    }
    /// Returns how often `below` changed while `above` read it.
    pub fn count(&self, above: &str, below: &str) -> u64 {
        self.counts.iter().filter(|((a, b), _)| *a == above && *b == below).map(|(_, n)| n).sum()
    }
    /// Adds the counts of `other`.
    pub fn merge(&mut self, other: &Coverage) {
        for (k, n) in &other.counts {
            *self.counts.entry(*k).or_default() += n;
        }
    }
    /// Returns the operators that occur on either side of a pair.
    pub fn operators(&self) -> Vec<&'static str> {
        let mut names: Vec<_> = self.counts.keys().flat_map(|(a, b)| [*a, *b]).collect();
        names.sort_unstable();
        names.dedup();
        names
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.operators();
        write!(f, "{:>14}", "above \\ below")?;
        for b in &names {
            write!(f, " {b:>12}")?;
        }
        writeln!(f)?;
        for a in &names {
            write!(f, "{a:>14}")?;
            for b in &names {
                write!(f, " {:>12}", self.count(a, b))?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}
