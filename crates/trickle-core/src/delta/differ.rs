//! Differentiation of a plan, one node after another.

use super::{Kept, Part, class, negate, sum};
use crate::error::Result;
use crate::graph::{Graph, NodeId, NodeMap};
use crate::rel::{Class, Consolidate, Keys, Rel, SemiJoin, State, Values, Version};
use crate::table::TableId;
use std::collections::BTreeSet;

/// The rules from which a delta is built. All rules give equal results. The slower rules are references for
/// the faster ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rules {
    /// Each operator uses its algebraic rule if it has such a rule, and otherwise the class rule.
    Algebraic,
    /// Every operator uses the class rule.
    Class,
    /// The definition: the result of the whole plan after the change, minus its result before the change.
    Global,
}

/// The context of a delta rule: the graph, the deltas of inputs, and the stored states.
pub struct Differ<'g> {
    /// The graph that contains both Q and ΔQ.
    pub graph: &'g mut Graph,
    kept: Kept,
    changed: Option<BTreeSet<TableId>>,
    rules: Rules,
    trust_foreign_keys: bool,
    deltas: NodeMap<NodeId>,
    afters: NodeMap<NodeId>,
}

impl<'g> Differ<'g> {
    /// Starts a differentiation over `graph`. `kept` has the nodes whose previous result can be read
    /// ([`State`]). `changed` has the tables that changed in this window, so the deltas of all other tables
    /// are empty. If `changed` is `None`, any table may have changed.
    pub fn new(graph: &'g mut Graph, kept: Kept, changed: Option<BTreeSet<TableId>>, rules: Rules) -> Self {
        Differ {
            graph,
            kept,
            changed,
            rules,
            trust_foreign_keys: false,
            deltas: NodeMap::new(),
            afters: NodeMap::new(),
        }
    }

    /// Sets whether rules may rely on validated foreign keys. PostgreSQL does not prevent every violation of
    /// a validated foreign key: a session with the replica role can violate it. The user must therefore
    /// guarantee the keys.
    #[must_use]
    pub fn trusting_foreign_keys(mut self, trust: bool) -> Self {
        self.trust_foreign_keys = trust;
        self
    }
    /// Whether rules may rely on validated foreign keys.
    pub fn trusts_foreign_keys(&self) -> bool {
        self.trust_foreign_keys
    }

    /// Returns `Δn`. The delta is empty (a [`Values`] without rows) where no source of `n` changed.
    ///
    /// # Errors
    /// Errors of [`Graph::add`].
    pub fn delta(&mut self, n: NodeId) -> Result<NodeId> {
        if let Some(d) = self.deltas.get(n) {
            return Ok(d);
        }
        // A loop differentiates inputs before their readers, so a deep plan needs no deep recursion. The
        // definition (`Rules::Global`) reads no deltas of inputs.
        let order = if self.rules == Rules::Global { vec![n] } else { self.graph.reachable(n) };
        for id in order {
            if self.deltas.get(id).is_none() {
                let d = self.differentiate(id)?;
                self.deltas.insert(id, d);
            }
        }
        self.deltas.get(n).ok_or_else(|| crate::error::Error::internal("a node was not differentiated"))
    }

    /// Returns `Δn` of a stored node, with each row once. Readers of the node use this delta too, since it is
    /// computed anyway. Call this method for stored nodes before it is called for the nodes that read them.
    ///
    /// # Errors
    /// Errors of [`Graph::add`].
    pub fn stored_delta(&mut self, n: NodeId) -> Result<NodeId> {
        let delta = self.delta(n)?;
        let delta = self.net(delta, true)?;
        self.deltas.insert(n, delta);
        Ok(delta)
    }

    fn differentiate(&mut self, n: NodeId) -> Result<NodeId> {
        if !self.changes(n) {
            return sum(self.graph, n, []);
        }
        if let Rel::Table(t) = self.graph.rel(n) {
            let delta = t.at(Version::Delta);
            return self.graph.add(delta);
        }
        let node = self.graph.shared(n);
        if self.rules == Rules::Algebraic
            && let Some(d) = node.op().delta(self, n)?
        {
            return Ok(d);
        }
        let nodes: Vec<_> = node.inputs().iter().map(|i| self.graph.node(*i)).collect();
        let class = if self.rules == Rules::Global { Class::Global } else { node.op().class(&nodes) };
        match class {
            Class::Leaf => sum(self.graph, n, []),
            Class::Linear => class::linear(self, n),
            Class::Bilinear => class::bilinear(self, n),
            Class::PerKey { keys, output } => class::per_key(self, n, &keys, &output),
            Class::Global => class::global(self, n),
        }
    }

    /// Whether a source of `n` changed.
    pub fn changes(&self, n: NodeId) -> bool {
        self.graph.props(n).sources.iter().any(|s| self.is_changed(*s))
    }

    /// Whether a source may have changed. Where the changed sources are not known, the answer is true for
    /// every source.
    pub fn is_changed(&self, source: TableId) -> bool {
        self.changed.as_ref().is_none_or(|changed| changed.contains(&source))
    }

    /// Whether the previous result of `n` can be read.
    pub fn is_kept(&self, n: NodeId) -> bool {
        self.rules != Rules::Global && (self.kept.stored.contains(&n) || self.kept.derived.contains_key(&n))
    }

    /// Returns the previous result of `n`. Returns `None` where it cannot be read.
    ///
    /// # Errors
    /// Errors of [`Graph::add`].
    pub fn state(&mut self, n: NodeId) -> Result<Option<NodeId>> {
        let Some(parts) = self.parts(n)? else { return Ok(None) };
        let rows = parts.iter().map(|p| p.rows(self.graph, n)).collect::<Result<Vec<_>>>()?;
        sum(self.graph, n, rows).map(Some)
    }

    /// Returns the previous result of `n`, as the parts in which the result is stored. Returns `None` where
    /// the result cannot be read.
    ///
    /// # Errors
    /// Errors of [`Graph::add`].
    pub fn parts(&mut self, n: NodeId) -> Result<Option<Vec<Part>>> {
        if !self.is_kept(n) {
            return Ok(None);
        }
        if let Some(parts) = self.kept.derived.get(&n) {
            return Ok(Some(parts.clone()));
        }
        let state = State::new(self.graph, n);
        let state = self.graph.add(state)?;
        Ok(Some(vec![Part::whole(self.graph, state)]))
    }

    /// Returns n′, the result after the change, which is `n` over the current tables. If the previous result
    /// of `n` or of a node below `n` can be read, `State + Δ` replaces a recompute.
    ///
    /// # Errors
    /// Errors of [`Graph::add`].
    pub fn after(&mut self, n: NodeId) -> Result<NodeId> {
        if let Some(made) = self.afters.get(n) {
            return Ok(made);
        }
        for id in self.graph.reachable(n) {
            if self.afters.get(id).is_some() {
                continue;
            }
            let made = match self.state(id)? {
                Some(state) => self.kept_after(id, state)?,
                None => self.graph.over(id, |i| self.afters.get(i).unwrap_or(i))?,
            };
            self.afters.insert(id, made);
        }
        Ok(self.afters.get(n).unwrap_or(n))
    }

    fn kept_after(&mut self, n: NodeId, state: NodeId) -> Result<NodeId> {
        if !self.changes(n) {
            return Ok(state);
        }
        let delta = self.delta(n)?;
        let both = sum(self.graph, n, [state, delta])?;
        let keys = self.graph.props(n).keys.clone();
        self.graph.add(Consolidate::state(both).keyed(keys))
    }

    /// Returns the result of `n` before the change. This is the stored result or, if none is stored, the
    /// current result minus the change. Under [`Rules::Global`] the result is recomputed over the previous
    /// tables.
    ///
    /// # Errors
    /// Errors of [`Graph::add`].
    pub fn before(&mut self, n: NodeId) -> Result<NodeId> {
        if !self.changes(n) {
            return self.after(n);
        }
        if self.rules == Rules::Global {
            return self.recomputed_before(n);
        }
        if let Some(state) = self.state(n)? {
            return Ok(state);
        }
        let after = self.after(n)?;
        let delta = self.delta(n)?;
        self.minus(after, delta)
    }

    /// Returns `after − delta`, consolidated. If `after` is the current state and `delta` its change, the
    /// result is the previous state.
    ///
    /// # Errors
    /// Errors of [`Graph::add`].
    pub fn minus(&mut self, after: NodeId, delta: NodeId) -> Result<NodeId> {
        if self.graph.props(delta).empty {
            return Ok(after);
        }
        let back = negate(self.graph, delta)?;
        let before = sum(self.graph, after, [after, back])?;
        let props = self.graph.props(after);
        let consolidate = match props.non_negative {
            true => Consolidate::state(before).keyed(props.keys.clone()),
            false => Consolidate::change(before),
        };
        self.graph.add(consolidate)
    }

    fn recomputed_before(&mut self, n: NodeId) -> Result<NodeId> {
        self.graph.rebuild(n, |g, _, rel| match &rel {
            Rel::Table(t) if t.version() == Version::After => {
                let table = g.add(t.at(Version::Before))?;
                g.add(Consolidate::state(table))
            }
            _ => g.add(class::earlier(&rel)),
        })
    }

    /// Returns `keys(change)`: the values of the columns `cols` in the changed rows.
    ///
    /// # Errors
    /// Errors of [`Graph::add`].
    pub fn keys(&mut self, change: NodeId, cols: &[usize]) -> Result<NodeId> {
        self.graph.add(Keys::new(change, cols.to_vec()))
    }

    /// Returns `n ⋉ K`: the rows of `n` whose columns `cols` equal a row of `keys`.
    ///
    /// # Errors
    /// Errors of [`Graph::add`].
    pub fn restrict(&mut self, n: NodeId, cols: &[usize], keys: NodeId) -> Result<NodeId> {
        let semi = SemiJoin::restrict(self.graph, n, cols, keys);
        self.graph.add(semi)
    }

    /// Returns `after − before`.
    ///
    /// # Errors
    /// Errors of [`Graph::add`].
    pub fn difference(&mut self, after: NodeId, before: NodeId) -> Result<NodeId> {
        let minus = negate(self.graph, before)?;
        sum(self.graph, after, [after, minus])
    }

    /// Returns `change`. Its rows are merged if `needed`. An expression that can raise needs merged rows.
    ///
    /// # Errors
    /// Errors of [`Graph::add`].
    pub fn net(&mut self, change: NodeId, needed: bool) -> Result<NodeId> {
        if !needed || self.graph.props(change).consolidated || self.graph.props(change).empty {
            return Ok(change);
        }
        self.graph.add(Consolidate::change(change))
    }

    /// Returns a relation with the schema of `n` and no rows.
    ///
    /// # Errors
    /// Errors of [`Graph::add`].
    pub fn nothing(&mut self, n: NodeId) -> Result<NodeId> {
        let schema = self.graph.schema(n).clone();
        self.graph.add(Values::empty(schema))
    }
}
