//! Makes readable names for the nodes of a plan, from the names of the tables that they read.

use crate::graph::{Graph, NodeId, NodeMap};
use crate::rel::{Rel, Version};
use std::sync::Arc;

/// The names that the nodes of a plan should get. Several nodes may have the same name.
pub(super) struct Naming<'g> {
    graph: &'g Graph,
    named: NodeMap<Named>,
}

#[derive(Clone)]
struct Named {
    name: Arc<str>,
    /// The source tables that the node reads, in order of reading. Each table occurs once.
    tables: Arc<[Arc<str>]>,
}

impl<'g> Naming<'g> {
    /// Makes names for `nodes`, in which inputs must come before their readers.
    pub(super) fn new(graph: &'g Graph, nodes: &[NodeId]) -> Naming<'g> {
        let mut naming = Naming { graph, named: NodeMap::new() };
        for id in nodes {
            let named = naming.make(*id);
            naming.named.insert(*id, named);
        }
        naming
    }

    pub(super) fn name(&self, id: NodeId) -> Arc<str> {
        self.named.get_ref(id).map_or_else(|| Arc::from("rows"), |n| n.name.clone())
    }

    fn make(&self, id: NodeId) -> Named {
        if let Rel::Table(t) = self.graph.rel(id) {
            let table = &t.def().name;
            let name = match t.version() {
                Version::After => table.clone(),
                Version::Before => format!("{table}_before").into(),
                Version::Delta => format!("delta_{table}").into(),
            };
            return Named { name, tables: Arc::from([table.clone()]) };
        }
        let inputs: Vec<&Named> =
            self.graph.inputs(id).iter().filter_map(|i| self.named.get_ref(*i)).collect();
        let tables = match inputs.as_slice() {
            [one] => one.tables.clone(),
            several => {
                let mut all: Vec<Arc<str>> = Vec::new();
                for t in several.iter().flat_map(|n| n.tables.iter()) {
                    if !all.contains(t) {
                        all.push(t.clone());
                    }
                }
                all.into()
            }
        };
        Named { name: name(self.graph, id, &inputs, &tables), tables }
    }
}

fn name(graph: &Graph, id: NodeId, inputs: &[&Named], tables: &[Arc<str>]) -> Arc<str> {
    let first = inputs.first().map_or_else(|| Arc::from(""), |n| n.name.clone());
    let delta = graph.props(id).reads_delta;
    let sources = || short(tables.join("_"), tables);
    match graph.rel(id) {
        Rel::Map(_) | Rel::Filter(_) | Rel::Negate(_) | Rel::Revise(_) => return first,
        Rel::Consolidate(_) if first.starts_with("net_") => return first,
        Rel::SemiJoin(s) if !s.is_anti() && (first.ends_with("_touched") || first.ends_with("_matched")) => {
            return first;
        }
        _ => {}
    }
    let name = match graph.rel(id) {
        Rel::Table(_) | Rel::Map(_) | Rel::Filter(_) | Rel::Negate(_) | Rel::Revise(_) => String::new(),
        Rel::Values(_) => "rows".to_owned(),
        Rel::State(_) => "stored".to_owned(),
        Rel::Consolidate(_) | Rel::Positive(_) => format!("net_{first}"),
        Rel::Union(_) if delta => format!("delta_{}", sources()),
        Rel::Union(_) => format!("all_{}", sources()),
        Rel::OuterJoin(o) if delta && matches!(graph.rel(o.right_input()), Rel::State(_)) => {
            format!("{}_and_old", first.trim_end_matches("_and_old"))
        }
        Rel::Join(_) | Rel::OuterJoin(_) => {
            let sides = inputs.iter().map(|n| &*n.name).collect::<Vec<_>>().join("_");
            match tables {
                // For a join of a table with itself, the name would otherwise contain the table's name
                // several times.
                [only] if sides.len() > 48.max(3 * only.len()) => format!("{only}_with_itself"),
                _ => short(sides, tables),
            }
        }
        Rel::SemiJoin(s) if s.is_anti() => format!("{first}_unmatched"),
        Rel::SemiJoin(s) if graph.props(s.right()).reads_delta => format!("{first}_touched"),
        Rel::SemiJoin(_) => format!("{first}_matched"),
        Rel::Keys(_) | Rel::Distinct(_) if delta => format!("touched_{}", labels(graph, id, usize::MAX)),
        Rel::Keys(_) => format!("keys_{first}"),
        Rel::Distinct(_) => format!("distinct_{first}"),
        Rel::Reduce(r) => {
            let aggregate = r.aggs().first().map_or("groups", |a| &*a.sig.name);
            grouped(aggregate, graph, id, r.keys().len())
        }
        Rel::Expand(e) => {
            let function = e.calls().first().map_or("rows", |c| &*c.sig.name);
            short(format!("{first}_{function}"), tables)
        }
        Rel::Top(_) => format!("first_{first}"),
        Rel::Recursion(_) => format!("reached_{}", labels(graph, id, usize::MAX)),
        Rel::Window(_) => format!("windows_{first}"),
        Rel::Accumulate(a) if delta => grouped("changes", graph, id, a.keys().len()),
        Rel::Accumulate(a) => grouped("totals", graph, id, a.keys().len()),
        Rel::Single(_) => format!("single_{first}"),
        Rel::Widen(_) => "ranges".to_owned(),
        _ => format!("{}_{}", graph.node(id).op().name().to_lowercase(), sources()),
    };
    name.into()
}

fn grouped(what: &str, graph: &Graph, id: NodeId, keys: usize) -> String {
    if keys == 0 { what.to_owned() } else { format!("{what}_by_{}", labels(graph, id, keys)) }
}

/// Returns the labels of the first `count` columns of a node, but at most three labels.
fn labels(graph: &Graph, id: NodeId, count: usize) -> String {
    let columns = graph.schema(id).columns().iter().take(count.min(3));
    columns.map(|c| &*c.label).collect::<Vec<_>>().join("_")
}

/// Shortens a long name to the name of the first table and the number of the other tables.
fn short(name: String, tables: &[Arc<str>]) -> String {
    match (name.len() > 48, tables) {
        (true, [first, rest @ ..]) if !rest.is_empty() => format!("{first}_and_{}_more", rest.len()),
        _ => name,
    }
}
