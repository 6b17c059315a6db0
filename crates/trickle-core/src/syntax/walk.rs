//! Walks over syntax trees.

use super::{
    Access, Argument, Arguments, Body, Call, Constraint, Distinct, Expr, FormPart, FrameBound, FromItem,
    Functions, GroupSets, Node, ObjectName, OrderItem, Over, Query, Select, SelectItem, Subscript, TableKind,
    TableRef, WindowSpec,
};

/// A name in a tree.
#[derive(Clone, Copy)]
pub(crate) enum Mention<'a> {
    /// The name of a table, a view or a CTE in FROM.
    Relation(&'a ObjectName),
    /// The name of a called function, outside FROM or in `ROWS FROM`.
    Called(&'a ObjectName),
}

type Visit<'a, 'f> = &'f mut dyn FnMut(Mention<'a>);

/// A part of a query in which [`reads`] looks for names.
pub(crate) trait Walk {
    /// Visits every name in the part.
    fn walk<'a>(&'a self, visit: Visit<'a, '_>);
}

impl Walk for Query {
    fn walk<'a>(&'a self, visit: Visit<'a, '_>) {
        query(self, visit);
    }
}

impl Walk for Body {
    fn walk<'a>(&'a self, visit: Visit<'a, '_>) {
        body(self, visit);
    }
}

/// Counts how often a query, or a part of a query, names this relation without a schema.
pub(crate) fn reads(tree: &impl Walk, name: &str) -> usize {
    let mut n = 0;
    tree.walk(&mut |mention| {
        if let Mention::Relation(relation) = mention
            && let [only] = relation.parts.as_slice()
        {
            n += usize::from(only.folded() == name);
        }
    });
    n
}

/// Returns the names of the functions that an expression calls, each with its schema if one is given. Calls
/// within subqueries are included. Calls with keywords between their arguments are left out.
pub(crate) fn calls(e: &Expr) -> Vec<(Option<String>, String)> {
    let mut found = Vec::new();
    expr(e, &mut |mention| {
        if let Mention::Called(name) = mention {
            found.push(name.qualified());
        }
    });
    found
}

fn query<'a>(q: &'a Query, visit: Visit<'a, '_>) {
    let Query { with, body: own, order_by, limit, fetch, locks: _, search: _, cycle, extent: _ } = q;
    with.iter().flat_map(|w| &w.ctes).for_each(|c| query(&c.query, visit));
    body(own, visit);
    order(order_by, visit);
    let counts = limit.iter().flat_map(|l| l.count.iter().chain(&l.offset));
    exprs(counts.chain(fetch.iter().flat_map(|f| &f.quantity)), visit);
    if let Some((value, other)) = cycle.as_ref().and_then(|c| c.values.as_ref()) {
        exprs([value, other], visit);
    }
}

fn body<'a>(b: &'a Body, visit: Visit<'a, '_>) {
    stacker::maybe_grow(256 << 10, 4 << 20, || match b {
        Body::Select(s) => select(s, visit),
        Body::Query(q) => query(q, visit),
        Body::SetOperation(s) => {
            body(&s.left, visit);
            body(&s.right, visit);
        }
        Body::Values(v) => exprs(v.rows.iter().flatten(), visit),
        Body::Write(_) => {}
    });
}

fn select<'a>(s: &'a Select, visit: Visit<'a, '_>) {
    let Select { distinct, items, from, selection, group_by, having, windows, extent: _ } = s;
    if let Some(Distinct::On(on)) = distinct {
        exprs(on, visit);
    }
    for item in items {
        match item {
            SelectItem::Value { expr: e, .. } | SelectItem::FieldsStar(e, _) => expr(e, visit),
            SelectItem::Star(_) | SelectItem::TableStar(..) => {}
        }
    }
    from.iter().for_each(|item| from_item(item, visit));
    exprs(selection, visit);
    group_by.items.iter().for_each(|item| group_sets(&item.sets, visit));
    exprs(having, visit);
    windows.iter().for_each(|w| window(&w.spec, visit));
}

fn group_sets<'a>(sets: &'a GroupSets, visit: Visit<'a, '_>) {
    match sets {
        GroupSets::Set(keys) => exprs(keys, visit),
        GroupSets::Sets(all) => all.iter().for_each(|s| group_sets(s, visit)),
        GroupSets::Rollup(parts) | GroupSets::Cube(parts) => exprs(parts.iter().flatten(), visit),
    }
}

fn from_item<'a>(item: &'a FromItem, visit: Visit<'a, '_>) {
    table(&item.first, visit);
    for join in &item.joins {
        table(&join.table, visit);
        match &join.constraint {
            Constraint::On(e) => expr(e, visit),
            Constraint::Using { .. } | Constraint::Natural | Constraint::None => {}
        }
    }
}

fn table<'a>(t: &'a TableRef, visit: Visit<'a, '_>) {
    match &t.kind {
        TableKind::Named { name, .. } => visit(Mention::Relation(name)),
        TableKind::Query { query: q, .. } => query(q, visit),
        TableKind::Nested(item) => from_item(item, visit),
        TableKind::Functions { functions, .. } => match functions {
            Functions::Call(call) => arguments(&call.args, visit),
            Functions::Rows(rows) => rows.iter().for_each(|r| {
                visit(Mention::Called(&r.call.name));
                arguments(&r.call.args, visit);
            }),
            Functions::Form(form) => form_parts(&form.parts, visit),
        },
    }
}

fn order<'a>(keys: &'a [OrderItem], visit: Visit<'a, '_>) {
    exprs(keys.iter().map(|k| &k.expr), visit);
}

fn window<'a>(w: &'a WindowSpec, visit: Visit<'a, '_>) {
    exprs(&w.partition_by, visit);
    order(&w.order_by, visit);
    for bound in w.frame.iter().flat_map(|f| std::iter::once(&f.start).chain(&f.end)) {
        match bound {
            FrameBound::CurrentRow => {}
            FrameBound::Preceding(offset) | FrameBound::Following(offset) => {
                exprs(offset.as_deref(), visit);
            }
        }
    }
}

fn arguments<'a>(args: &'a [Argument], visit: Visit<'a, '_>) {
    for arg in args {
        match arg {
            Argument::Value(e) | Argument::Variadic(e) => expr(e, visit),
            Argument::Named { value, .. } => exprs(value, visit),
            Argument::Star => {}
        }
    }
}

fn form_parts<'a>(parts: &'a [FormPart], visit: Visit<'a, '_>) {
    for part in parts {
        match part {
            FormPart::Argument(e) => expr(e, visit),
            FormPart::Word(_) | FormPart::Name(_) | FormPart::Type(_) => {}
        }
    }
}

fn call<'a>(c: &'a Call, visit: Visit<'a, '_>) {
    visit(Mention::Called(&c.name));
    match &c.args {
        Arguments::List(list) => arguments(list, visit),
        Arguments::Query(q) => query(q, visit),
    }
    order(&c.order_by, visit);
    order(&c.within_group, visit);
    exprs(c.filter.as_deref(), visit);
    match &c.over {
        Some(Over::Spec(spec)) => window(spec, visit),
        Some(Over::Named(_)) | None => {}
    }
}

fn exprs<'a>(list: impl IntoIterator<Item = &'a Expr>, visit: Visit<'a, '_>) {
    list.into_iter().for_each(|e| expr(e, visit));
}

fn expr<'a>(e: &'a Expr, visit: Visit<'a, '_>) {
    stacker::maybe_grow(256 << 10, 4 << 20, || match &e.node {
        Node::Name(_)
        | Node::WholeRow(_)
        | Node::Star
        | Node::Literal(_)
        | Node::TypedLiteral { .. }
        | Node::Interval(_)
        | Node::FormOverQuery(_) => {}
        Node::Nested(operand)
        | Node::Unary { operand, .. }
        | Node::Is { operand, .. }
        | Node::IsForm { operand, .. }
        | Node::Cast { operand, .. }
        | Node::Collate { operand, .. }
        | Node::Extract { operand, .. }
        | Node::ArrayOfQuery(operand) => expr(operand, visit),
        Node::Binary { left, right, .. }
        | Node::IsDistinct { left, right, .. }
        | Node::Quantified { left, right, .. }
        | Node::Position { part: left, text: right } => exprs([&**left, &**right], visit),
        Node::Between { operand, low, high, .. } => exprs([&**operand, &**low, &**high], visit),
        Node::InList { operand, list, .. } => exprs(std::iter::once(&**operand).chain(list), visit),
        Node::InQuery { operand, query: q, .. } => {
            expr(operand, visit);
            query(q, visit);
        }
        Node::Exists { query: q, .. } | Node::Subquery(q) => query(q, visit),
        Node::Like { operand, pattern, escape, .. } | Node::SimilarTo { operand, pattern, escape, .. } => {
            exprs([&**operand, &**pattern].into_iter().chain(escape.as_deref()), visit);
        }
        Node::AtTimeZone { operand, zone } => {
            exprs(std::iter::once(&**operand).chain(zone.as_deref()), visit);
        }
        Node::Case(case) => {
            exprs(case.operand.as_deref(), visit);
            exprs(case.whens.iter().flat_map(|w| [&w.condition, &w.result]), visit);
            exprs(case.otherwise.as_deref(), visit);
        }
        Node::Builtin { args, .. } | Node::Array(args) | Node::Row(args) => exprs(args, visit),
        Node::Access { root, chain } => {
            expr(root, visit);
            chain.iter().for_each(|a| match a {
                Access::Subscript(Subscript::Index(index)) => expr(index, visit),
                Access::Subscript(Subscript::Slice(lower, upper)) => {
                    exprs(lower.as_deref().into_iter().chain(upper.as_deref()), visit)
                }
                Access::Field(_) | Access::AllFields => {}
            });
        }
        Node::Call(c) => call(c, visit),
        Node::Form(form) => form_parts(&form.parts, visit),
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relations_without_a_schema_are_counted_everywhere() {
        let sql = "WITH w AS (SELECT * FROM a) SELECT (SELECT 1 FROM s.a) FROM a x
            JOIN (SELECT f(1) FROM a) y ON EXISTS (TABLE a), a(2) WHERE a.a IN (SELECT 1 FROM b)";
        let parsed = crate::parse::parse_query(sql).unwrap();
        let query = parsed.query().unwrap();
        assert_eq!((reads(query, "a"), reads(query, "b"), reads(query, "s")), (4, 1, 0));
    }
}
