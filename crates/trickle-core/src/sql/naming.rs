//! Readable names for the parts of a plan, from where they come.

use crate::graph::{Graph, NodeId};
use crate::rel::{Rel, Version};
use std::collections::HashMap;

/// For every node under `root` a name, not unique.
pub(super) fn name_nodes(graph: &Graph, root: NodeId) -> HashMap<NodeId, String> {
    let mut names: HashMap<NodeId, String> = HashMap::new();
    let mut tables: HashMap<NodeId, Vec<String>> = HashMap::new();
    for id in graph.reachable(root) {
        let mut from: Vec<String> = Vec::new();
        for input in graph.inputs(id) {
            for t in tables.get(&input).into_iter().flatten() {
                if !from.contains(t) {
                    from.push(t.clone());
                }
            }
        }
        if let Rel::Table(t) = graph.rel(id) {
            from.push(t.def().name.to_string());
        }
        let inputs: Vec<String> =
            graph.inputs(id).iter().map(|i| names.get(i).cloned().unwrap_or_default()).collect();
        names.insert(id, name(graph, id, &inputs, &from));
        tables.insert(id, from);
    }
    names
}

fn name(graph: &Graph, id: NodeId, inputs: &[String], tables: &[String]) -> String {
    let first = inputs.first().cloned().unwrap_or_default();
    let delta = graph.props(id).reads_delta;
    let sources = short(tables.join("_"), tables);
    match graph.rel(id) {
        Rel::Table(t) => match t.version() {
            Version::After => t.def().name.to_string(),
            Version::Before => format!("{}_before", t.def().name),
            Version::Delta => format!("delta_{}", t.def().name),
        },
        Rel::Values(_) => "rows".to_owned(),
        Rel::State(_) => "stored".to_owned(),
        Rel::Map(_) | Rel::Filter(_) | Rel::Negate(_) => first,
        Rel::Consolidate(_) if first.starts_with("net_") => first,
        Rel::Consolidate(_) | Rel::Positive(_) => format!("net_{first}"),
        Rel::Union(_) if delta => format!("delta_{sources}"),
        Rel::Union(_) => format!("all_{sources}"),
        Rel::Join(_) | Rel::OuterJoin(_) => short(inputs.join("_"), tables),
        Rel::SemiJoin(s) if s.is_anti() => format!("{first}_unmatched"),
        Rel::SemiJoin(_) if first.ends_with("_touched") || first.ends_with("_matched") => first,
        Rel::SemiJoin(s) if graph.props(s.right()).reads_delta => format!("{first}_touched"),
        Rel::SemiJoin(_) => format!("{first}_matched"),
        Rel::Keys(_) if delta => format!("touched_{}", labels(graph, id, usize::MAX)),
        Rel::Keys(_) => format!("keys_{first}"),
        Rel::Distinct(_) if delta => format!("touched_{}", labels(graph, id, usize::MAX)),
        Rel::Distinct(_) => format!("distinct_{first}"),
        Rel::Reduce(r) => {
            let aggregate = r.aggs().first().map_or("groups", |a| &*a.sig.name);
            grouped(aggregate, graph, id, r.keys().len())
        }
        Rel::Accumulate(a) if delta => grouped("changes", graph, id, a.keys().len()),
        Rel::Accumulate(a) => grouped("totals", graph, id, a.keys().len()),
        Rel::Single(_) => format!("single_{first}"),
        Rel::SetOp(_) => format!("{}_{sources}", graph.node(id).op().name().to_lowercase()),
    }
}

fn grouped(what: &str, graph: &Graph, id: NodeId, keys: usize) -> String {
    if keys == 0 { what.to_owned() } else { format!("{what}_by_{}", labels(graph, id, keys)) }
}

/// The first labels of a node's columns.
fn labels(graph: &Graph, id: NodeId, count: usize) -> String {
    let columns = graph.schema(id).columns().iter().take(count.min(3));
    columns.map(|c| &*c.label).collect::<Vec<_>>().join("_")
}

/// A long name gives way to its first table and how many more there are.
fn short(name: String, tables: &[String]) -> String {
    match (name.len() > 48, tables) {
        (true, [first, rest @ ..]) if !rest.is_empty() => format!("{first}_and_{}_more", rest.len()),
        _ => name,
    }
}
