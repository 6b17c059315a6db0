//! The graph of base tables and stream tables, with edges from a source to its readers.
//!
//! The graph never holds a cycle. A change that would close a cycle is refused before the graph is changed,
//! with an error that names the tables on the cycle. All results have a fixed order (by level, then by id),
//! so equal graphs give equal answers.

mod components;
#[cfg(test)]
mod diamond;

use crate::error::{Error, Result};
use crate::table::TableId;
use components::strongly_connected;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, OnceLock};

/// A node of the graph: a table with the edges to it and from it.
#[derive(Clone, Debug)]
struct Table {
    name: Arc<str>,
    stream: bool,
    apart: bool,
    sources: BTreeSet<TableId>,
    readers: BTreeSet<TableId>,
}

/// A stream table that is added to the graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamTableNode {
    /// The id of the stream table.
    pub id: TableId,
    /// The name of the stream table, as people write it. Messages use it.
    pub name: Arc<str>,
    /// The sources of the defining query, with names for messages. If a source is not in the graph yet, it is
    /// added as a base table.
    pub sources: Vec<(TableId, Arc<str>)>,
    /// Whether the stream table is refreshed in a separate transaction, after the stream tables that it
    /// reads. Such a stream table need not agree with them on one state of the base tables
    /// (`diamond_consistency = 'none'`).
    pub apart: bool,
}

/// The graph of sources and readers.
#[derive(Clone, Debug, Default)]
pub struct Dag {
    tables: BTreeMap<TableId, Table>,
    /// Facts derived from the tables. They are stored until the tables change, since a scheduler reads them
    /// many times a second.
    derived: OnceLock<Derived>,
    /// See [`Dag::chain`].
    chains: OnceLock<BTreeMap<TableId, Vec<TableId>>>,
}

/// See [`Dag::groups`], [`Dag::order`].
#[derive(Clone, Debug, Default)]
struct Derived {
    groups: Vec<Vec<TableId>>,
    order: Vec<TableId>,
}

impl Dag {
    /// Makes the empty graph.
    pub fn new() -> Dag {
        Dag::default()
    }

    /// Builds the graph of all stream tables at once, given in any order. Takes O(V + E) time.
    ///
    /// # Errors
    /// Fails with [`Error::cycle`], which names the tables on a cycle, if the stored dependencies contain a
    /// cycle.
    pub fn build(tables: impl IntoIterator<Item = StreamTableNode>) -> Result<Dag> {
        let mut dag = Dag::new();
        for t in tables {
            dag.link(&t);
        }
        match dag.cyclic_group() {
            None => Ok(dag),
            Some(group) => {
                let path = dag.cycle_within(&group);
                Err(dag.cycle_error(&path))
            }
        }
    }

    /// Adds a stream table, or gives an existing stream table new sources. Base tables that no stream table
    /// reads any more leave the graph. Takes O(tables downstream of the stream table + its sources) time.
    ///
    /// # Errors
    /// Fails with [`Error::cycle`] if the sources would close a cycle. The error names the tables on the
    /// cycle, and the graph is unchanged.
    pub fn put(&mut self, table: &StreamTableNode) -> Result<()> {
        let wanted: BTreeSet<TableId> = table.sources.iter().map(|(id, _)| *id).collect();
        if let Some(path) = self.path_into(table.id, &wanted) {
            let mut names: Vec<Arc<str>> = path.iter().map(|id| self.name_of(*id)).collect();
            if let Some(first) = names.first_mut() {
                *first = table.name.clone();
            }
            return Err(cycle_message(&names));
        }
        let old = self.sources(table.id);
        self.link(table);
        self.forget_unread(&old);
        Ok(())
    }

    /// Adds or updates the node of a stream table and the edges to it, without a check for cycles.
    fn link(&mut self, table: &StreamTableNode) {
        self.forget_derived();
        let sources: BTreeSet<TableId> = table.sources.iter().map(|(id, _)| *id).collect();
        for id in self.sources(table.id) {
            self.tables.entry(id).and_modify(|t| _ = t.readers.remove(&table.id));
        }
        for (id, name) in &table.sources {
            self.enter(*id, name, false).readers.insert(table.id);
        }
        let entered = self.enter(table.id, &table.name, true);
        entered.apart = table.apart;
        entered.sources = sources;
    }

    fn forget_derived(&mut self) {
        self.derived.take();
        self.chains.take();
    }

    /// Returns the node of a table. A table that is not in the graph is added without edges. If the node is a
    /// stream table, it remains a stream table, whatever `stream` says.
    fn enter(&mut self, id: TableId, name: &Arc<str>, stream: bool) -> &mut Table {
        let new = || Table {
            name: name.clone(),
            stream,
            apart: false,
            sources: BTreeSet::new(),
            readers: BTreeSet::new(),
        };
        let table = self.tables.entry(id).or_insert_with(new);
        table.name = name.clone();
        table.stream |= stream;
        table
    }

    /// Removes from the graph those base tables among `ids` that have no reader.
    fn forget_unread(&mut self, ids: &[TableId]) {
        for id in ids {
            if self.table(*id).is_some_and(|t| !t.stream && t.readers.is_empty()) {
                self.tables.remove(id);
            }
        }
    }

    /// Removes a stream table, and the base tables that no other stream table reads.
    ///
    /// # Errors
    /// Fails with 2BP01 if other stream tables read the stream table. The caller must remove these readers
    /// first. To remove readers at all depths, remove the tables of [`Dag::downstream`] in reverse refresh
    /// order.
    pub fn remove(&mut self, id: TableId) -> Result<()> {
        let readers = self.readers(id);
        if !readers.is_empty() {
            let names: Vec<String> = readers.iter().map(|r| self.name_of(*r).to_string()).collect();
            return Err(Error::dependents(format!(
                "cannot drop stream table {} because other stream tables read it",
                self.name_of(id)
            ))
            .detail(format!("It is read by {}.", names.join(", ")))
            .hint("Drop these first, or use cascade."));
        }
        let sources = self.sources(id);
        self.forget_derived();
        self.tables.remove(&id);
        for source in &sources {
            self.tables.entry(*source).and_modify(|t| _ = t.readers.remove(&id));
        }
        self.forget_unread(&sources);
        Ok(())
    }

    /// Returns a path `id → … → s` in the present graph, where `s` is in `wanted`. The path is `[id]` if `id`
    /// itself is in `wanted`.
    fn path_into(&self, id: TableId, wanted: &BTreeSet<TableId>) -> Option<Vec<TableId>> {
        let mut from: BTreeMap<TableId, TableId> = BTreeMap::new();
        let mut seen = BTreeSet::from([id]);
        let mut queue = VecDeque::from([id]);
        while let Some(at) = queue.pop_front() {
            if wanted.contains(&at) {
                let mut path = vec![at];
                while let Some(p) = path.last().and_then(|l| from.get(l)) {
                    path.push(*p);
                }
                path.reverse();
                return Some(path);
            }
            for r in self.readers(at) {
                if seen.insert(r) {
                    from.insert(r, at);
                    queue.push_back(r);
                }
            }
        }
        None
    }

    /// Returns a strongly connected component that is a cycle.
    fn cyclic_group(&self) -> Option<BTreeSet<TableId>> {
        let own = |id: &TableId| self.sources(*id).contains(id);
        self.components_strong().into_iter().find(|g| g.len() > 1 || g.iter().any(own))
    }

    /// Returns a shortest cycle through the table with the least id of a cyclic component.
    fn cycle_within(&self, group: &BTreeSet<TableId>) -> Vec<TableId> {
        let Some(start) = group.first() else { return Vec::new() };
        let into: BTreeSet<TableId> =
            self.sources(*start).into_iter().filter(|s| group.contains(s)).collect();
        self.path_into(*start, &into).unwrap_or_default()
    }

    fn cycle_error(&self, path: &[TableId]) -> Error {
        cycle_message(&path.iter().map(|id| self.name_of(*id)).collect::<Vec<_>>())
    }

    /// Returns the strongly connected components. Each component has one table, unless there is a cycle. The
    /// component of a source comes before the components of its readers. Takes O(V + E) time.
    pub(crate) fn components_strong(&self) -> Vec<BTreeSet<TableId>> {
        strongly_connected(self.tables.keys().copied(), |id| self.readers(id), |id| self.sources(id))
    }

    fn table(&self, id: TableId) -> Option<&Table> {
        self.tables.get(&id)
    }

    fn name_of(&self, id: TableId) -> Arc<str> {
        self.table(id).map_or_else(|| id.to_string().into(), |t| t.name.clone())
    }

    /// Returns all tables that can be reached from `id` in one or more steps. `id` itself is among them only
    /// if it is on a cycle.
    fn closure(&self, id: TableId, step: impl Fn(&Dag, TableId) -> Vec<TableId>) -> BTreeSet<TableId> {
        let mut seen = BTreeSet::new();
        let mut stack = vec![id];
        while let Some(at) = stack.pop() {
            stack.extend(step(self, at).into_iter().filter(|n| seen.insert(*n)));
        }
        seen
    }

    /// Returns the name that the graph has for a table.
    pub fn name(&self, id: TableId) -> Option<&str> {
        self.table(id).map(|t| &*t.name)
    }
    /// Whether the table is a stream table.
    pub fn is_stream_table(&self, id: TableId) -> bool {
        self.table(id).is_some_and(|t| t.stream)
    }
    /// Whether the table is in the graph.
    pub fn contains(&self, id: TableId) -> bool {
        self.tables.contains_key(&id)
    }
    /// Returns all stream tables, by id.
    pub fn stream_tables(&self) -> Vec<TableId> {
        self.tables.iter().filter(|(_, t)| t.stream).map(|(id, _)| *id).collect()
    }
    /// Returns the tables that a stream table's query reads directly, by id.
    pub fn sources(&self, id: TableId) -> Vec<TableId> {
        self.table(id).map_or_else(Vec::new, |t| t.sources.iter().copied().collect())
    }
    /// Returns the stream tables whose queries read the table directly, by id.
    pub fn readers(&self, id: TableId) -> Vec<TableId> {
        self.table(id).map_or_else(Vec::new, |t| t.readers.iter().copied().collect())
    }
    /// Returns every table from which this table is computed, including base tables but not the table itself.
    pub fn upstream(&self, id: TableId) -> BTreeSet<TableId> {
        self.closure(id, Dag::sources)
    }
    /// Returns every stream table that is computed from this table, but not the table itself.
    pub fn downstream(&self, id: TableId) -> BTreeSet<TableId> {
        self.closure(id, Dag::readers)
    }

    /// Returns the stream tables by level. Stream tables of level 0 read only base tables. Stream tables of
    /// level n+1 read at least one stream table of level n, and no stream table of a higher level. Stream
    /// tables of one level do not depend on each other. Takes O(V + E) time.
    pub fn levels(&self) -> Vec<Vec<TableId>> {
        self.levels_of(&self.stream_tables().into_iter().collect())
    }

    /// Returns the levels of the stream tables `members` among themselves. Edges from or to other tables are
    /// ignored.
    pub(crate) fn levels_of(&self, members: &BTreeSet<TableId>) -> Vec<Vec<TableId>> {
        let inner = |ids: Vec<TableId>| ids.into_iter().filter(|i| members.contains(i));
        let mut waiting: BTreeMap<TableId, usize> =
            members.iter().map(|m| (*m, inner(self.sources(*m)).count())).collect();
        let mut level: Vec<TableId> =
            members.iter().copied().filter(|m| waiting.get(m) == Some(&0)).collect();
        let mut levels = Vec::new();
        while !level.is_empty() {
            let mut next = BTreeSet::new();
            for r in level.iter().flat_map(|id| inner(self.readers(*id))) {
                if let Some(n) = waiting.get_mut(&r) {
                    *n = n.saturating_sub(1);
                    if *n == 0 {
                        next.insert(r);
                    }
                }
            }
            levels.push(std::mem::replace(&mut level, next.into_iter().collect()));
        }
        levels
    }

    /// Returns all stream tables, each after all tables that it reads.
    pub fn order(&self) -> &[TableId] {
        &self.derived().order
    }

    fn derived(&self) -> &Derived {
        self.derived.get_or_init(|| Derived { groups: self.components(), order: self.levels().concat() })
    }

    /// Returns a stream table and all stream tables upstream of it, in refresh order. The result equals
    /// [`Dag::refresh_set`] of this table. The list is empty if the id is not the id of a stream table. Takes
    /// O(V + all chains) time, once for a graph.
    pub fn chain(&self, id: TableId) -> &[TableId] {
        self.chains.get_or_init(|| self.all_chains()).get(&id).map_or(&[], Vec::as_slice)
    }

    /// Computes the chains of all stream tables. A chain contains all stream tables upstream of its members.
    /// The order of the whole graph is therefore a correct order for a chain.
    fn all_chains(&self) -> BTreeMap<TableId, Vec<TableId>> {
        let order = self.order();
        let place: BTreeMap<TableId, usize> = order.iter().enumerate().map(|(i, id)| (*id, i)).collect();
        let mut chains: Vec<BTreeSet<usize>> = Vec::new();
        for (i, id) in order.iter().enumerate() {
            let sources = self.sources(*id);
            let upstream = sources.iter().filter_map(|s| chains.get(*place.get(s)?)).flatten().copied();
            let chain = upstream.chain([i]).collect();
            chains.push(chain);
        }
        let named = |chain: &BTreeSet<usize>| chain.iter().filter_map(|i| order.get(*i)).copied().collect();
        order.iter().zip(&chains).map(|(id, chain)| (*id, named(chain))).collect()
    }

    /// Returns the members in an order in which each member comes after the members that it reads.
    pub fn order_of(&self, members: &BTreeSet<TableId>) -> Vec<TableId> {
        self.levels_of(members).concat()
    }

    /// Returns the consistency groups, each in refresh order. A consistency group is a set of stream tables
    /// that are refreshed in one transaction.
    ///
    /// A reader and the stream tables that it reads must agree on one state. The reader is therefore in the
    /// group of these stream tables, unless it is [apart](StreamTableNode::apart). The groups are the
    /// strongly connected components of a graph with additional edges: each reader that is not apart also has
    /// an edge to its sources. If a path leads out of a group and back, the tables on the path therefore
    /// belong to the group.
    ///
    /// A group comes after the groups that it reads. Groups of equal depth are ordered by their least id.
    /// Two groups share no stream table, though they may share base tables. Groups of equal depth can
    /// therefore be refreshed in parallel. Takes O((V + E) log V) time, once for a graph.
    pub fn groups(&self) -> &[Vec<TableId>] {
        &self.derived().groups
    }

    fn components(&self) -> Vec<Vec<TableId>> {
        let apart = |id: TableId| self.table(id).is_some_and(|t| t.apart);
        let streams = |ids: Vec<TableId>| ids.into_iter().filter(|id| self.is_stream_table(*id));
        let forward = |id: TableId| {
            let back = if apart(id) { Vec::new() } else { self.sources(id) };
            streams(self.readers(id)).chain(streams(back)).collect()
        };
        let backward = |id: TableId| {
            streams(self.sources(id)).chain(streams(self.readers(id)).filter(|r| !apart(*r))).collect()
        };
        let mut depth: BTreeMap<TableId, usize> = BTreeMap::new();
        let mut groups: Vec<(usize, Vec<TableId>)> = Vec::new();
        for members in strongly_connected(self.stream_tables(), forward, backward) {
            let read = members.iter().flat_map(|id| self.sources(*id)).filter_map(|s| depth.get(&s)).max();
            let own = read.map_or(0, |d| d + 1);
            depth.extend(members.iter().map(|id| (*id, own)));
            groups.push((own, self.order_of(&members)));
        }
        groups.sort_by_key(|(depth, members)| (*depth, members.iter().min().copied()));
        groups.into_iter().map(|(_, members)| members).collect()
    }

    /// Returns the stream tables that a change of any table in `changed` affects, in refresh order. Stream
    /// tables in `changed` are among them.
    pub fn affected(&self, changed: &BTreeSet<TableId>) -> Vec<TableId> {
        let mut seen = BTreeSet::new();
        let mut stack: Vec<TableId> = changed.iter().copied().collect();
        while let Some(at) = stack.pop() {
            stack.extend(self.readers(at).into_iter().filter(|r| seen.insert(*r)));
        }
        seen.extend(changed.iter().copied().filter(|c| self.is_stream_table(*c)));
        self.order_of(&seen)
    }

    /// Returns the stream tables `wanted` and all stream tables upstream of them, in refresh order. If all of
    /// these are refreshed together, their contents agree with one state of the base tables.
    pub fn refresh_set(&self, wanted: &BTreeSet<TableId>) -> Vec<TableId> {
        let mut seen: BTreeSet<TableId> =
            wanted.iter().copied().filter(|w| self.is_stream_table(*w)).collect();
        let mut stack: Vec<TableId> = seen.iter().copied().collect();
        while let Some(at) = stack.pop() {
            let up = self.sources(at).into_iter().filter(|s| self.is_stream_table(*s));
            stack.extend(up.filter(|s| seen.insert(*s)));
        }
        match self.derived.get() {
            // The set contains all stream tables upstream of its members. The order of the whole graph is
            // therefore a correct order for the set.
            Some(known) => known.order.iter().copied().filter(|id| seen.contains(id)).collect(),
            None => self.order_of(&seen),
        }
    }
}

/// Returns the error that names the tables on a cycle; `names` lists each of these tables once, sources
/// before readers.
fn cycle_message(names: &[Arc<str>]) -> Error {
    let round: Vec<&str> = names.iter().chain(names.first()).map(|n| &**n).collect();
    let text = match names {
        [one] => format!("stream table {one} would read itself"),
        _ => format!("stream tables would form a cycle: {}", round.join(" → ")),
    };
    Error::cycle(text).hint("Let one of them read the base tables instead.")
}

#[cfg(test)]
mod tests;
