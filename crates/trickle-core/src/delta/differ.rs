//! Differentiation of a plan, node by node.

use super::{Kept, Part, class, negate, sum};
use crate::catalog::TableId;
use crate::error::Result;
use crate::graph::{Graph, NodeId, NodeMap};
use crate::rel::{Class, Consolidate, Keys, Rel, SemiJoin, State, Values, Version};
use std::collections::BTreeSet;

/// The rules that a delta is built from. All give equal results; the slower ones are references for the
/// faster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rules {
    /// Algebraic rules where there are any, else the class rule.
    Algebraic,
    /// The class rule of every operator.
    Class,
    /// After minus before of the whole plan: the definition.
    Global,
}

/// The context of a delta rule: the graph, the deltas of inputs, the stored states.
pub struct Differ<'g> {
    /// The graph that holds both Q and ΔQ.
    pub graph: &'g mut Graph,
    kept: Kept,
    changed: Option<BTreeSet<TableId>>,
    rules: Rules,
    trust_foreign_keys: bool,
    deltas: NodeMap<NodeId>,
    afters: NodeMap<NodeId>,
}

impl<'g> Differ<'g> {
    /// Starts a differentiation over `graph`. `kept` are the nodes whose previous result can be read
    /// ([`State`]). `changed` are the tables that changed in this window, where that is known: the deltas of
    /// all other tables are empty.
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

    /// Lets rules rely on validated foreign keys. PostgreSQL lets them be violated (by replica-role sessions,
    /// say), so the user must vouch for them.
    #[must_use]
    pub fn trusting_foreign_keys(mut self, trust: bool) -> Self {
        self.trust_foreign_keys = trust;
        self
    }
    /// Whether validated foreign keys may be relied upon.
    pub fn trusts_foreign_keys(&self) -> bool {
        self.trust_foreign_keys
    }

    /// Returns `Δn`, which is empty (a [`Values`] without rows) where nothing that `n` reads changed.
    ///
    /// # Errors
    /// Those of [`Graph::add`].
    pub fn delta(&mut self, n: NodeId) -> Result<NodeId> {
        if let Some(d) = self.deltas.get(n) {
            return Ok(d);
        }
        // Inputs first, so that a loop walks a deep plan and not the stack. The definition (`Rules::Global`)
        // needs no deltas of inputs.
        let order = if self.rules == Rules::Global { vec![n] } else { self.graph.reachable(n) };
        for id in order {
            if self.deltas.get(id).is_none() {
                let d = self.differentiate(id)?;
                self.deltas.insert(id, d);
            }
        }
        self.deltas.get(n).ok_or_else(|| crate::Error::internal("a node was not differentiated"))
    }

    /// Returns `Δn` of a stored node, each row once. Readers of the node continue with this delta, since it
    /// is computed anyway. Stored nodes must be asked for before the nodes that read them.
    ///
    /// # Errors
    /// Those of [`Graph::add`].
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

    /// Whether anything that `n` reads changed.
    pub fn changes(&self, n: NodeId) -> bool {
        self.graph.props(n).sources.iter().any(|s| self.is_changed(*s))
    }

    /// Whether a source changed. True where the changed sources are not known.
    pub fn is_changed(&self, source: TableId) -> bool {
        self.changed.as_ref().is_none_or(|changed| changed.contains(&source))
    }

    /// Whether the previous result of `n` can be read.
    pub fn is_kept(&self, n: NodeId) -> bool {
        self.rules != Rules::Global && (self.kept.stored.contains(&n) || self.kept.derived.contains_key(&n))
    }

    /// Returns the previous result of `n`, where it is kept.
    ///
    /// # Errors
    /// Those of [`Graph::add`].
    pub fn state(&mut self, n: NodeId) -> Result<Option<NodeId>> {
        let Some(parts) = self.parts(n)? else { return Ok(None) };
        let rows = parts.iter().map(|p| p.rows(self.graph, n)).collect::<Result<Vec<_>>>()?;
        sum(self.graph, n, rows).map(Some)
    }

    /// Returns the previous result of `n` as the parts in which it is stored, where it is kept.
    ///
    /// # Errors
    /// Those of [`Graph::add`].
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

    /// Returns n′, the result after the change: `n` itself over the current tables. Each stored part of `n`
    /// is read as `State + Δ` instead of being recomputed.
    ///
    /// # Errors
    /// Those of [`Graph::add`].
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

    /// Returns n, the result before the change: the stored result, or the current one minus the change. Under
    /// [`Rules::Global`] it is recomputed over the previous tables.
    ///
    /// # Errors
    /// Those of [`Graph::add`].
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

    /// Returns `after − delta`, consolidated: the previous state, where `after` is the current one.
    ///
    /// # Errors
    /// Those of [`Graph::add`].
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

    /// Returns `keys(Δ)`: the values of columns `cols` on the rows that changed.
    ///
    /// # Errors
    /// Those of [`Graph::add`].
    pub fn keys(&mut self, change: NodeId, cols: &[usize]) -> Result<NodeId> {
        self.graph.add(Keys::new(change, cols.to_vec()))
    }

    /// Returns `n ⋉ K`: the rows of `n` whose columns `cols` equal a row of `keys`.
    ///
    /// # Errors
    /// Those of [`Graph::add`].
    pub fn restrict(&mut self, n: NodeId, cols: &[usize], keys: NodeId) -> Result<NodeId> {
        let semi = SemiJoin::restrict(self.graph, n, cols, keys);
        self.graph.add(semi)
    }

    /// Returns `after − before`.
    ///
    /// # Errors
    /// Those of [`Graph::add`].
    pub fn difference(&mut self, after: NodeId, before: NodeId) -> Result<NodeId> {
        let minus = negate(self.graph, before)?;
        sum(self.graph, after, [after, minus])
    }

    /// Returns `change`, with its rows merged if `needed`: an expression that can raise must see net rows
    /// only.
    ///
    /// # Errors
    /// Those of [`Graph::add`].
    pub fn net(&mut self, change: NodeId, needed: bool) -> Result<NodeId> {
        if !needed || self.graph.props(change).consolidated || self.graph.props(change).empty {
            return Ok(change);
        }
        self.graph.add(Consolidate::change(change))
    }

    /// Returns a relation with the schema of `n` and no rows.
    ///
    /// # Errors
    /// Those of [`Graph::add`].
    pub fn nothing(&mut self, n: NodeId) -> Result<NodeId> {
        let schema = self.graph.schema(n).clone();
        self.graph.add(Values::empty(schema))
    }
}
