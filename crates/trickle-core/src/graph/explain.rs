//! Plans for people: text, DOT and Mermaid.

use super::{Column, Graph, Node, NodeId, Schema};
use crate::agg::{Acc, AggCall};
use crate::expr::{Expr, ExprKind, FormPiece, FuncKind, FuncSig, IsTest, Moment, Subscript, spaced};
use crate::rel::{Expand, Top, Window};
use crate::types::Datum;
use crate::window::OrderKey;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::fmt::Write;

/// The form in which a plan is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// An indented tree. A node that several operators read is written in full once. At its other
    /// occurrences, only its name is written.
    Text,
    /// A graph in Graphviz's DOT language.
    Dot,
    /// A Mermaid flowchart.
    Mermaid,
}

/// A note on a node, which is written after the node's operator. An empty text means that there is no note.
pub type Note<'a> = &'a dyn Fn(NodeId) -> &'static str;

/// Draws the plan under `root`.
pub fn explain(graph: &Graph, root: NodeId, format: Format) -> String {
    explain_with(graph, root, format, &|_| "")
}

/// Draws the plan under `root`. The note of each node is in brackets.
pub fn explain_with(graph: &Graph, root: NodeId, format: Format, note: Note<'_>) -> String {
    match format {
        Format::Text => text(graph, root, note),
        Format::Dot => edges(
            graph,
            root,
            note,
            "digraph plan {\n  node [shape=box];\n",
            "}\n",
            |id, l| format!("  {id} [label=\"{l}\"];\n"),
            |a, b| format!("  {a} -> {b};\n"),
        ),
        Format::Mermaid => edges(
            graph,
            root,
            note,
            "flowchart BT\n",
            "",
            |id, l| format!("  {id}[\"{l}\"]\n"),
            |a, b| format!("  {a} --> {b}\n"),
        ),
    }
}

/// Describes the plan under `root` as JSON, for programs. Nodes are listed after their inputs. Each node has
/// its id, its operator, the text that [`explain`] shows, and the ids of its inputs. It also has its columns
/// (name, type, nullable), its keys (positions) and its note.
pub fn explain_json(graph: &Graph, root: NodeId, note: Note<'_>) -> Value {
    let node = |id: NodeId| {
        let node = graph.node(id);
        let column =
            |c: &Column| json!({"name": &*c.label, "type": c.ty.to_string(), "nullable": c.nullable});
        let keys: Vec<Vec<usize>> = node.props().keys.iter().map(|k| k.iter().collect()).collect();
        let mut value = json!({
            "id": id.to_string(),
            "operator": node.op().name(),
            "text": line(graph, id, &|_| ""),
            "inputs": graph.inputs(id).iter().map(NodeId::to_string).collect::<Vec<_>>(),
            "columns": node.schema().columns().iter().map(column).collect::<Vec<_>>(),
            "keys": keys,
        });
        if !note(id).is_empty() {
            value["cost"] = note(id).into();
        }
        value
    };
    json!({"root": root.to_string(), "nodes": graph.reachable(root).into_iter().map(node).collect::<Vec<_>>()})
}

fn text(graph: &Graph, root: NodeId, note: Note<'_>) -> String {
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
        let _ = writeln!(out, "{indent}{name}{}", line(graph, id, note));
        stack.extend(graph.inputs(id).iter().rev().map(|i| (*i, depth + 1)));
    }
    out
}

fn line(graph: &Graph, id: NodeId, note: Note<'_>) -> String {
    let node = graph.node(id);
    let inputs: Vec<&Node> = graph.inputs(id).iter().map(|i| graph.node(*i)).collect();
    let what = node.op().describe(&inputs);
    let space = if what.is_empty() { "" } else { " " };
    let note = note(id);
    let note = if note.is_empty() { String::new() } else { format!(" [{note}]") };
    format!("{}{space}{what}{note}", node.op().name())
}

fn edges(
    graph: &Graph,
    root: NodeId,
    note: Note<'_>,
    head: &str,
    tail: &str,
    node: fn(NodeId, &str) -> String,
    edge: fn(NodeId, NodeId) -> String,
) -> String {
    let mut out = head.to_owned();
    for id in graph.reachable(root) {
        out.push_str(&node(id, &line(graph, id, note).replace('"', "'")));
        for i in graph.inputs(id) {
            out.push_str(&edge(*i, id));
        }
    }
    out.push_str(tail);
    out
}

fn concat(inputs: &[&Node]) -> Schema {
    inputs.iter().fold(Schema::new([]), |s, n| s.concat(n.schema()))
}

/// Returns a comma-separated list of expressions. They read the concatenated columns of all inputs.
pub(crate) fn describe_exprs(exprs: &[Expr], inputs: &[&Node]) -> String {
    let schema = concat(inputs);
    exprs.iter().map(|e| describe(e, &schema)).collect::<Vec<_>>().join(", ")
}

/// Returns the text `by keys: aggregates`.
pub(crate) fn describe_groups(keys: &[usize], aggs: &[AggCall], inputs: &[&Node]) -> String {
    let schema = concat(inputs);
    let calls = aggs.iter().map(|a| {
        let distinct = if a.distinct { "DISTINCT " } else { "" };
        let star = a.args.is_empty() && !a.within_group;
        let args = if star { "*".to_owned() } else { describe_exprs(&a.args, inputs) };
        let filter =
            a.filter.as_ref().map(|f| format!(" FILTER ({})", describe(f, &schema))).unwrap_or_default();
        let order =
            a.order_by.iter().map(|k| describe(&k.expr, &schema) + direction(k.descending, k.nulls_first));
        let order = order.collect::<Vec<_>>().join(", ");
        let (inside, behind) = match (order.is_empty(), a.within_group) {
            (true, _) => (String::new(), String::new()),
            (_, true) => (String::new(), format!(" within group ({order})")),
            (_, false) => (format!(" order ({order})"), String::new()),
        };
        format!("{}({distinct}{args}{inside}){behind}{filter}", a.sig.name)
    });
    format!("by ({}): {}", columns(keys, &schema), calls.collect::<Vec<_>>().join(", "))
}

/// Returns the text `by (partition) order (keys): calls`.
pub(crate) fn describe_window(window: &Window, inputs: &[&Node]) -> String {
    let schema = concat(inputs);
    let order = order(window.order(), &schema);
    let calls: Vec<String> = window
        .calls()
        .iter()
        .map(|c| match (c.is_window_function(), c.call.args.is_empty()) {
            (false, true) => format!("{}(*)", c.call.sig.name),
            _ => format!("{}({})", c.call.sig.name, describe_exprs(&c.call.args, inputs)),
        })
        .collect();
    let order = if order.is_empty() { order } else { format!(" order ({order})") };
    format!("by ({}){order}: {}", columns(window.partition(), &schema), calls.join(", "))
}

/// Returns the text `f(…), g(…) with ordinality or NULLs`.
pub(crate) fn describe_expand(expand: &Expand, inputs: &[&Node]) -> String {
    let schema = concat(inputs);
    let calls: Vec<String> = expand.calls().iter().map(|c| call(&c.sig, &c.args, &schema)).collect();
    let numbered = if expand.has_ordinality() { " with ordinality" } else { "" };
    let outer = if expand.is_outer() { " or NULLs" } else { "" };
    format!("{}{numbered}{outer}", calls.join(", "))
}

/// Returns the text `by (partition) order (keys): limit`.
pub(crate) fn describe_top(top: &Top, inputs: &[&Node]) -> String {
    let schema = concat(inputs);
    let (slice, by) = (top.slice(), top.partition());
    let by = if by.is_empty() { String::new() } else { format!("by ({}) ", columns(by, &schema)) };
    let order = order(top.order(), &schema);
    let offset = if slice.offset > 0 { format!(" offset {}", slice.offset) } else { String::new() };
    let limit = slice.limit.map(|n| format!(" limit {n}")).unwrap_or_default();
    let ties = if slice.ties { " with ties" } else { "" };
    format!("{by}order ({order}){offset}{limit}{ties}")
}

fn order(keys: &[OrderKey], schema: &Schema) -> String {
    let key = |k: &OrderKey| columns(&[k.column], schema) + direction(k.descending, k.nulls_first);
    keys.iter().map(key).collect::<Vec<_>>().join(", ")
}

/// Returns the direction of an order key. Where NULLs are not in the default position for this direction,
/// returns their position too.
fn direction(descending: bool, nulls_first: bool) -> &'static str {
    match (descending, nulls_first) {
        (false, false) => "",
        (false, true) => " NULLS FIRST",
        (true, true) => " DESC",
        (true, false) => " DESC NULLS LAST",
    }
}

/// Returns the text `by keys: accumulators`.
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

/// Returns a call as `f(a, b)`, or in the special syntax that SQL has for the function.
fn call(sig: &FuncSig, args: &[Expr], s: &Schema) -> String {
    let mut args = args.iter().map(|a| describe(a, s));
    if sig.form.is_empty() {
        return format!("{}({})", sig.name, args.collect::<Vec<_>>().join(", "));
    }
    let mut text = String::new();
    for (apart, piece) in spaced(&sig.form) {
        if apart {
            text.push(' ');
        }
        match piece {
            FormPiece::Word(words) => text.push_str(words),
            FormPiece::Name(name) => text.push_str(name),
            FormPiece::Type(ty) => text.push_str(&ty.to_string()),
            FormPiece::Text(constant) => text.push_str(&format!("'{constant}'")),
            FormPiece::Argument => text.extend(args.next()),
        }
    }
    text
}

fn case(whens: &[(Expr, Expr)], otherwise: &Expr, s: &Schema) -> String {
    let when = |(c, v): &(Expr, Expr)| format!("WHEN {} THEN {}", describe(c, s), describe(v, s));
    let whens = whens.iter().map(when).collect::<Vec<_>>().join(" ");
    format!("CASE {whens} ELSE {} END", describe(otherwise, s))
}

/// Returns the text of an expression. A column is written `label#position`.
fn describe(e: &Expr, s: &Schema) -> String {
    let list = |args: &[Expr], sep: &str| args.iter().map(|a| describe(a, s)).collect::<Vec<_>>().join(sep);
    match e.kind() {
        ExprKind::Column(i) => column(*i, s),
        ExprKind::Literal(Datum::Text(t)) => format!("'{t}'"),
        ExprKind::Literal(Datum::Null) => "NULL".to_owned(),
        ExprKind::Literal(d) => format!("{d}"),
        ExprKind::Clock(Moment::Then) => "then".to_owned(),
        ExprKind::Clock(Moment::Now) => "now".to_owned(),
        ExprKind::Call(sig, args) if sig.is_operator() && args.len() == 2 => {
            format!("({} {} {})", describe(&args[0], s), sig.name, describe(&args[1], s))
        }
        ExprKind::Call(sig, args) if sig.kind == FuncKind::Field => {
            format!("({}).{}", list(args, ", "), sig.name)
        }
        ExprKind::Call(sig, args) => call(sig, args, s),
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
        ExprKind::Case { whens, otherwise } => case(whens, otherwise, s),
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
        ExprKind::Subscript { array, at } => {
            let bound = |e: &Option<Expr>| e.as_ref().map(|e| describe(e, s)).unwrap_or_default();
            let at = at.iter().map(|at| match at {
                Subscript::Index(i) => format!("[{}]", describe(i, s)),
                Subscript::Slice(lower, upper) => format!("[{}:{}]", bound(lower), bound(upper)),
            });
            format!("{}{}", describe(array, s), at.collect::<String>())
        }
        ExprKind::ManyRows => "raise 21000".to_owned(),
    }
}
