//! Plans for people: text, DOT and Mermaid.

use super::{Graph, Node, NodeId, Schema};
use crate::agg::{Acc, AggCall};
use crate::expr::{Expr, ExprKind, IsTest};
use crate::types::Datum;
use std::collections::HashSet;
use std::fmt::Write;

/// How to draw a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// An indented tree; a shared node is written out once and named after that.
    Text,
    /// Graphviz.
    Dot,
    /// Mermaid flowchart.
    Mermaid,
}

/// Draws the plan under `root`.
pub fn explain(graph: &Graph, root: NodeId, format: Format) -> String {
    match format {
        Format::Text => text(graph, root),
        Format::Dot => edges(
            graph,
            root,
            "digraph plan {\n  node [shape=box];\n",
            "}\n",
            |id, l| format!("  {id} [label=\"{l}\"];\n"),
            |a, b| format!("  {a} -> {b};\n"),
        ),
        Format::Mermaid => edges(
            graph,
            root,
            "flowchart BT\n",
            "",
            |id, l| format!("  {id}[\"{l}\"]\n"),
            |a, b| format!("  {a} --> {b}\n"),
        ),
    }
}

fn text(graph: &Graph, root: NodeId) -> String {
    let mut out = String::new();
    let mut shown = HashSet::new();
    let mut readers = vec![0usize; graph.len()];
    for id in graph.reachable(root) {
        for i in graph.inputs(id) {
            readers[i.index()] += 1;
        }
    }
    let mut stack = vec![(root, 0usize)];
    while let Some((id, depth)) = stack.pop() {
        let indent = "  ".repeat(depth);
        let shared = readers[id.index()] > 1 && !graph.inputs(id).is_empty();
        if shared && !shown.insert(id) {
            let _ = writeln!(out, "{indent}{id} (above)");
            continue;
        }
        let name = if shared { format!("{id}: ") } else { String::new() };
        let _ = writeln!(out, "{indent}{name}{}", line(graph, id));
        stack.extend(graph.inputs(id).into_iter().rev().map(|i| (i, depth + 1)));
    }
    out
}

fn line(graph: &Graph, id: NodeId) -> String {
    let node = graph.node(id);
    let inputs: Vec<&Node> = graph.inputs(id).into_iter().map(|i| graph.node(i)).collect();
    let what = node.op().describe(&inputs);
    if what.is_empty() { node.op().name().to_owned() } else { format!("{} {what}", node.op().name()) }
}

fn edges(
    graph: &Graph,
    root: NodeId,
    head: &str,
    tail: &str,
    node: fn(NodeId, &str) -> String,
    edge: fn(NodeId, NodeId) -> String,
) -> String {
    let mut out = head.to_owned();
    for id in graph.reachable(root) {
        out.push_str(&node(id, &line(graph, id).replace('"', "'")));
        for i in graph.inputs(id) {
            out.push_str(&edge(i, id));
        }
    }
    out.push_str(tail);
    out
}

fn concat(inputs: &[&Node]) -> Schema {
    inputs.iter().fold(Schema::new([]), |s, n| s.concat(n.schema()))
}

/// A comma-separated list of expressions over the columns of all inputs side by side.
pub(crate) fn describe_exprs(exprs: &[Expr], inputs: &[&Node]) -> String {
    let schema = concat(inputs);
    exprs.iter().map(|e| describe(e, &schema)).collect::<Vec<_>>().join(", ")
}

/// `by keys: aggregates`
pub(crate) fn describe_groups(keys: &[usize], aggs: &[AggCall], inputs: &[&Node]) -> String {
    let schema = concat(inputs);
    let calls = aggs.iter().map(|a| {
        let distinct = if a.distinct { "DISTINCT " } else { "" };
        let args = if a.args.is_empty() { "*".to_owned() } else { describe_exprs(&a.args, inputs) };
        let filter =
            a.filter.as_ref().map(|f| format!(" FILTER ({})", describe(f, &schema))).unwrap_or_default();
        format!("{}({distinct}{args}){filter}", a.sig.name)
    });
    format!("by ({}): {}", columns(keys, &schema), calls.collect::<Vec<_>>().join(", "))
}

/// `by keys: accumulators`
pub(crate) fn describe_accumulators(keys: &[usize], accs: &[Acc], inputs: &[&Node]) -> String {
    let schema = concat(inputs);
    let sums = accs.iter().map(|a| {
        let what =
            a.value.as_ref().map_or_else(|| "Σw".to_owned(), |v| format!("Σw·{}", describe(v, &schema)));
        let filter =
            a.filter.as_ref().map(|f| format!(" FILTER ({})", describe(f, &schema))).unwrap_or_default();
        format!("{what}{filter}")
    });
    format!("by ({}): {}", columns(keys, &schema), sums.collect::<Vec<_>>().join(", "))
}

fn columns(cols: &[usize], schema: &Schema) -> String {
    cols.iter().map(|c| column(*c, schema)).collect::<Vec<_>>().join(", ")
}

fn column(index: usize, schema: &Schema) -> String {
    schema.column(index).map_or_else(|| format!("#{index}"), |c| format!("{}#{index}", c.label))
}

/// One expression, with columns as `label#position`.
fn describe(e: &Expr, s: &Schema) -> String {
    let list = |args: &[Expr], sep: &str| args.iter().map(|a| describe(a, s)).collect::<Vec<_>>().join(sep);
    match e.kind() {
        ExprKind::Column(i) => column(*i, s),
        ExprKind::Literal(Datum::Text(t)) => format!("'{t}'"),
        ExprKind::Literal(Datum::Null) => "NULL".to_owned(),
        ExprKind::Literal(d) => format!("{d}"),
        ExprKind::Call(sig, args) if sig.is_operator() && args.len() == 2 => {
            format!("({} {} {})", describe(&args[0], s), sig.name, describe(&args[1], s))
        }
        ExprKind::Call(sig, args) => format!("{}({})", sig.name, list(args, ", ")),
        ExprKind::Cast(a) => format!("{}::{}", describe(a, s), e.ty()),
        ExprKind::And(args) => format!("({})", list(args, " AND ")),
        ExprKind::Or(args) => format!("({})", list(args, " OR ")),
        ExprKind::Not(a) => format!("NOT {}", describe(a, s)),
        ExprKind::Is { arg, test, negated } => {
            let test = match test {
                IsTest::Null => "NULL",
                IsTest::True => "TRUE",
                IsTest::False => "FALSE",
            };
            format!("{} IS {}{test}", describe(arg, s), if *negated { "NOT " } else { "" })
        }
        ExprKind::Distinct { left, right, negated } => {
            format!("({} {} {})", describe(left, s), if *negated { "≡" } else { "≢" }, describe(right, s))
        }
        ExprKind::Case { whens, otherwise } => {
            let whens = whens
                .iter()
                .map(|(c, v)| format!("WHEN {} THEN {}", describe(c, s), describe(v, s)))
                .collect::<Vec<_>>()
                .join(" ");
            format!("CASE {whens} ELSE {} END", describe(otherwise, s))
        }
        ExprKind::Coalesce(args) => format!("coalesce({})", list(args, ", ")),
        ExprKind::Extreme { greatest, args } => {
            format!("{}({})", if *greatest { "greatest" } else { "least" }, list(args, ", "))
        }
        ExprKind::Quantified { op, arg, array, all } => format!(
            "{} {} {}({})",
            describe(arg, s),
            op.name,
            if *all { "ALL" } else { "ANY" },
            describe(array, s)
        ),
        ExprKind::Array(args) => format!("ARRAY[{}]", list(args, ", ")),
        ExprKind::Row(args) => format!("ROW({})", list(args, ", ")),
        ExprKind::Subscript(a, i) => format!("{}[{}]", describe(a, s), describe(i, s)),
        ExprKind::ManyRows => "raise 21000".to_owned(),
    }
}
