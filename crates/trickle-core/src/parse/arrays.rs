//! Rewrites two forms in the syntax tree: `ARRAY(SELECT …)` becomes a call of an aggregate, and `t.*` as an
//! argument becomes a row value.
//!
//! `ARRAY(SELECT v … [ORDER BY k])` becomes
//! `COALESCE((SELECT array_agg(v ORDER BY k) FROM (SELECT v, k …)), '{}')`. The `t.*` of `f(t.*)` becomes the
//! expression that the parser makes for `t.*` elsewhere.

use sqlparser::ast::helpers::attached_token::AttachedToken;
use sqlparser::ast::{
    Distinct, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentClause, FunctionArguments,
    OrderBy, OrderByExpr, OrderByKind, Query, SelectItem, SetExpr, TableFactor, TableWithJoins, Value,
    VisitMut, VisitorMut,
};
use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan};
use std::ops::ControlFlow;

/// The alias of the query whose rows become an array.
const ARRAY: &str = "\0array";
/// The name of the query's column that has the values. The names of the sort keys come from `key`.
const VALUE: &str = "\0value";

fn key(i: usize) -> String {
    format!("\0key{i}")
}

/// Whether `ARRAY(SELECT …)` or `f(t.*)` may occur among the tokens.
pub(super) fn may_stand_in(tokens: &[TokenWithSpan]) -> bool {
    let mut before = &Token::EOF;
    tokens.iter().filter(|t| !matches!(t.token, Token::Whitespace(_))).any(|t| {
        let array =
            matches!(before, Token::Word(w) if w.keyword == Keyword::ARRAY && w.quote_style.is_none());
        let found = match &t.token {
            Token::LParen => array,
            Token::Mul => *before == Token::Period,
            _ => false,
        };
        before = &t.token;
        found
    })
}

/// Rewrites every `ARRAY(SELECT …)` and `f(t.*)` in a query.
pub(super) fn reword(query: &mut Query) {
    let _ = query.visit(&mut Reworder);
}

struct Reworder;

impl VisitorMut for Reworder {
    type Break = ();

    fn pre_visit_expr(&mut self, e: &mut Expr) -> ControlFlow<()> {
        let Expr::Function(f) = e else { return ControlFlow::Continue(()) };
        if let FunctionArguments::List(list) = &mut f.args {
            list.args.iter_mut().for_each(row_argument);
        } else if let Some(new) = array(f) {
            *e = new;
        }
        ControlFlow::Continue(())
    }
}

/// Turns an argument `t.*` into an expression.
fn row_argument(arg: &mut FunctionArg) {
    let (FunctionArg::Unnamed(inner) | FunctionArg::Named { arg: inner, .. }) = arg else { return };
    if let FunctionArgExpr::QualifiedWildcard(name) = inner {
        *inner = FunctionArgExpr::Expr(Expr::QualifiedWildcard(name.clone(), AttachedToken::empty()));
    }
}

fn is_array(f: &Function) -> bool {
    let [name] = f.name.0.as_slice() else { return false };
    name.as_ident().is_some_and(|i| i.quote_style.is_none() && i.value.eq_ignore_ascii_case("array"))
}

/// Whether a call was made from `ARRAY(SELECT …)`.
pub(super) fn is_array_of_query(f: &Function) -> bool {
    let FunctionArguments::List(list) = &f.args else { return false };
    let Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Subquery(q)))) = list.args.first() else {
        return false;
    };
    let SetExpr::Select(s) = &*q.body else { return false };
    let [TableWithJoins { relation: TableFactor::Derived { alias: Some(alias), .. }, .. }] =
        s.from.as_slice()
    else {
        return false;
    };
    alias.name.value == ARRAY
}

/// Returns the expression for `ARRAY(SELECT …)`. Returns `None` if the ORDER BY of the query cannot be
/// rewritten.
fn array(f: &Function) -> Option<Expr> {
    let FunctionArguments::Subquery(inner) = &f.args else { return None };
    if !is_array(f) {
        return None;
    }
    let mut inner = inner.clone();
    let keys = take_keys(&mut inner)?;
    let given = keys.iter().enumerate().filter(|(_, k)| !k.own).map(|(i, _)| key(i));
    let list = given.fold(format!("\"{VALUE}\""), |list, n| format!("{list}, \"{n}\""));
    let order = keys.iter().enumerate().map(|(i, k)| match k.own {
        false => format!("\"{}\"", key(i)),
        true => format!("\"{VALUE}\""),
    });
    let order =
        order.reduce(|a, b| format!("{a}, {b}")).map(|o| format!(" ORDER BY {o}")).unwrap_or_default();
    let text = format!(
        "COALESCE((SELECT array_agg(\"{VALUE}\"{order}) FROM (SELECT 1) AS \"{ARRAY}\" ({list})), '{{}}')"
    );
    let tokens = sqlparser::tokenizer::Tokenizer::new(&sqlparser::dialect::PostgreSqlDialect {}, &text)
        .tokenize_with_location()
        .ok()?;
    let mut template = super::parser(tokens).parse_expr().ok()?;
    fill(&mut template, inner, keys)?;
    Some(template)
}

/// A sort key of a query.
struct Key {
    /// Whether the key is the value that the array collects.
    own: bool,
    order: OrderByExpr,
}

/// Adds the sort keys of a query to its columns, and returns the keys. The expression of a key then occurs
/// once in the tree. A second copy would double the tree at every level of nested queries. The query keeps
/// its ORDER BY only if a LIMIT needs it.
fn take_keys(query: &mut Query) -> Option<Vec<Key>> {
    let mut keys = Vec::new();
    if let Some(order) = query.order_by.take() {
        let OrderByKind::Expressions(order) = order.kind else { return None };
        for order in order {
            let own = is_value(&query.body, &order.expr)?;
            keys.push(Key { own, order });
        }
    }
    let given: Vec<Expr> = keys.iter().filter(|k| !k.own).map(|k| k.order.expr.clone()).collect();
    if !keys.is_empty() && (query.limit_clause.is_some() || query.fetch.is_some()) {
        let mut place = 1;
        let order = keys.iter().map(|k| {
            place += usize::from(!k.own);
            let at = if k.own { 1 } else { place };
            let expr = Expr::value(Value::Number(at.to_string(), false));
            OrderByExpr { expr, options: k.order.options.clone(), with_fill: None }
        });
        let kind = OrderByKind::Expressions(order.collect());
        query.order_by = Some(OrderBy { kind, interpolate: None });
    }
    if !given.is_empty() {
        let SetExpr::Select(s) = &mut *query.body else { return None };
        s.projection.extend(given.into_iter().map(SelectItem::UnnamedExpr));
    }
    Some(keys)
}

/// Whether a sort key denotes the only output, by number, name or expression. `None` if the query cannot be
/// rewritten: it has several outputs, or DISTINCT forbids the key as a further column.
fn is_value(body: &SetExpr, key: &Expr) -> Option<bool> {
    if matches!(key, Expr::Value(v) if matches!(v.value, Value::Number(..))) {
        return Some(true);
    }
    let name = matches!(key, Expr::Identifier(_) | Expr::CompoundIdentifier(_));
    let SetExpr::Select(s) = body else { return name.then_some(true) };
    let [item] = s.projection.as_slice() else { return None };
    let own = match (item, key) {
        (SelectItem::ExprWithAlias { expr, alias }, Expr::Identifier(name)) => {
            alias.value == name.value || key == expr
        }
        (SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }, _) => key == expr,
        // The query has only one column, so a `*` stands for that column.
        _ => name,
    };
    let distinct = !matches!(&s.distinct, None | Some(Distinct::All));
    if distinct && !own { None } else { Some(own) }
}

/// Puts the query into the template, and its sort keys into the ORDER BY of the aggregate.
fn fill(template: &mut Expr, query: Box<Query>, keys: Vec<Key>) -> Option<()> {
    let Expr::Function(f) = template else { return None };
    let FunctionArguments::List(list) = &mut f.args else { return None };
    let FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Subquery(outer))) = list.args.first_mut()? else {
        return None;
    };
    let SetExpr::Select(select) = &mut *outer.body else { return None };
    let SelectItem::UnnamedExpr(Expr::Function(aggregate)) = select.projection.first_mut()? else {
        return None;
    };
    let mut order = keys.into_iter().map(|k| k.order);
    if let FunctionArguments::List(list) = &mut aggregate.args {
        for clause in &mut list.clauses {
            let FunctionArgumentClause::OrderBy(made) = clause else { continue };
            for (new, old) in made.iter_mut().zip(&mut order) {
                *new = OrderByExpr { expr: new.expr.clone(), ..old };
            }
        }
    }
    let TableFactor::Derived { subquery, .. } = &mut select.from.first_mut()?.relation else { return None };
    *subquery = query;
    Some(())
}

#[cfg(test)]
mod tests {
    use super::super::tests::rewritten;

    #[test]
    fn arrays_of_queries_are_aggregates() {
        for (sql, wanted) in [
            (
                "SELECT ARRAY(SELECT a FROM t ORDER BY b DESC, a)",
                "SELECT COALESCE((SELECT array_agg(\"!value\" ORDER BY \"!key0\" DESC, \"!value\") \
                 FROM (SELECT a, b FROM t) AS \"!array\" (\"!value\", \"!key0\")), '{}')",
            ),
            (
                "SELECT ARRAY(SELECT DISTINCT a FROM t ORDER BY 1 LIMIT 2)",
                "SELECT COALESCE((SELECT array_agg(\"!value\" ORDER BY \"!value\") \
                 FROM (SELECT DISTINCT a FROM t ORDER BY 1 LIMIT 2) AS \"!array\" (\"!value\")), '{}')",
            ),
            (
                "SELECT ARRAY(SELECT a FROM t ORDER BY a, b DESC LIMIT 2)",
                "SELECT COALESCE((SELECT array_agg(\"!value\" ORDER BY \"!value\", \"!key1\" DESC) \
                 FROM (SELECT a, b FROM t ORDER BY 1, 2 DESC LIMIT 2) AS \"!array\" (\"!value\", \"!key1\")), '{}')",
            ),
            (
                "SELECT 1 = ANY (ARRAY(VALUES (1), (2)))",
                "SELECT 1 = ANY(COALESCE((SELECT array_agg(\"!value\") FROM (VALUES (1), (2)) AS \"!array\" (\"!value\")), '{}'))",
            ),
            (
                "SELECT ARRAY(SELECT a FROM t)",
                "SELECT COALESCE((SELECT array_agg(\"!value\") FROM (SELECT a FROM t) AS \"!array\" (\"!value\")), '{}')",
            ),
            (
                "SELECT ARRAY(SELECT * FROM f(a) AS x ORDER BY x, x % 2), ARRAY(SELECT 1 UNION SELECT 2 LIMIT 1)",
                "SELECT COALESCE((SELECT array_agg(\"!value\" ORDER BY \"!value\", \"!key1\") \
                 FROM (SELECT *, x % 2 FROM f(a) AS x) AS \"!array\" (\"!value\", \"!key1\")), '{}'), \
                 COALESCE((SELECT array_agg(\"!value\") \
                 FROM (SELECT 1 UNION SELECT 2 LIMIT 1) AS \"!array\" (\"!value\")), '{}')",
            ),
            ("SELECT f(t.*), count(*) FROM t", "SELECT f(t.*), count(*) FROM t"),
        ] {
            assert_eq!(rewritten(sql), wanted);
        }
    }
}
