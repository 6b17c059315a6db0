//! Lowers scalar expressions.

use super::Lowerer;
use super::grouping::GroupingCall;
use super::literal;
use super::subquery::{Pending, SubqueryForm, row, row_constructor, subquery_of};
use super::window::Windowed;
use crate::agg::AggCall;
use crate::error::{Error, Result, Span};
use crate::expr::{Expr, ExprKind, IsTest};
use crate::graph::Schema;
use crate::rel::SetCall;
use crate::syntax::{
    BinaryOperator, Case, Expr as Ast, Ident, Literal, NamedWindow, Node, Operator, Place, Query, Select,
    Test, TypeName, UnaryOperator,
};
use crate::types::{Datum, Type};
use crate::verdict::{Cause, ReasonKind};

/// The greatest number of nodes in an expression. NULLIF, BETWEEN and CASE with an operand become expressions
/// that contain an operand more than once. Each level of nesting therefore multiplies the size of the
/// expression. A few hundred levels would exhaust any memory.
const MAX_SIZE: usize = 1 << 18;

/// The context in which the expressions of one clause are lowered. It collects the calls and subqueries that
/// lowering finds in these expressions.
pub(super) struct ClauseContext<'q> {
    /// The name of the clause, for messages.
    pub(super) clause: &'static str,
    /// Whether the clause may contain aggregates.
    pub(super) allows_aggregates: bool,
    pub(super) aggregates: Vec<AggCall>,
    pub(super) subqueries: Vec<Pending<'q>>,
    /// The columns used outside aggregates, with names and places for the error about a column that is not
    /// grouped.
    columns: Vec<(usize, String, Option<Span>)>,
    /// Whether the expression that is being lowered may read the clock. A condition on rows may read it.
    allows_clock: bool,
    /// Whether comparisons inside the expressions of the clause may read the clock.
    allows_timed_conditions: bool,
    /// Whether the expression that is being lowered is in the arguments of an aggregate.
    pub(super) inside_aggregate: bool,
    /// The calls of GROUPING.
    pub(super) groupings: Vec<GroupingCall<'q>>,
    /// The window function calls in the clause.
    pub(super) windows: Vec<Windowed<'q>>,
    /// The windows of the WINDOW clause. `None` in a clause that may not contain window function calls.
    named: Option<&'q [NamedWindow]>,
    /// Whether the expression that is being lowered is inside a window function call.
    pub(super) inside_window: bool,
    /// Whether the clause may contain set-returning functions.
    pub(super) allows_sets: bool,
    /// The calls of set-returning functions, each listed after the calls in its arguments.
    pub(super) sets: Vec<SetCall>,
    /// The conditions, outermost first, under which the expression that is being lowered is evaluated.
    guards: Vec<Expr>,
}

impl<'q> ClauseContext<'q> {
    pub(super) fn new(clause: &'static str) -> ClauseContext<'q> {
        ClauseContext {
            clause,
            allows_aggregates: false,
            aggregates: Vec::new(),
            subqueries: Vec::new(),
            columns: Vec::new(),
            allows_clock: false,
            allows_timed_conditions: false,
            inside_aggregate: false,
            groupings: Vec::new(),
            windows: Vec::new(),
            named: None,
            inside_window: false,
            allows_sets: false,
            sets: Vec::new(),
            guards: Vec::new(),
        }
    }

    /// Returns one condition that tests the guards in their order, outermost first. Returns `None` if the
    /// expression that is being lowered is always evaluated.
    pub(super) fn guard(&self) -> Option<Expr> {
        let open = self.guards.iter().map(|g| g.simplified(&Schema::new([])));
        let open: Vec<Expr> = open.filter(|g| *g != Expr::bool(true)).collect();
        open.into_iter().rev().reduce(|later, first| {
            let kind = ExprKind::Case { whens: vec![(first, later)], otherwise: Expr::bool(false) };
            Expr::new(kind, Type::Bool)
        })
    }

    /// Makes the context of a clause that is a condition on rows.
    pub(super) fn condition(clause: &'static str) -> ClauseContext<'q> {
        ClauseContext { allows_clock: true, ..ClauseContext::new(clause) }
    }

    /// Whether the expression that is being lowered may read the clock.
    pub(super) fn allows_clock(&self) -> bool {
        self.allows_clock
    }

    /// Makes the context of a clause that computes values. Comparisons inside the values may read the clock.
    pub(super) fn values(clause: &'static str) -> ClauseContext<'q> {
        ClauseContext { allows_timed_conditions: true, ..ClauseContext::new(clause) }
    }

    /// Makes the context of a clause that may contain aggregates.
    pub(super) fn grouping(clause: &'static str) -> ClauseContext<'q> {
        ClauseContext { allows_aggregates: true, ..ClauseContext::values(clause) }
    }

    /// Makes the context of the select list of `s`, which may contain aggregates, window function calls and
    /// set-returning functions.
    pub(super) fn select_list(s: &'q Select) -> ClauseContext<'q> {
        ClauseContext { named: Some(&s.windows), allows_sets: true, ..ClauseContext::grouping("SELECT") }
    }

    /// Makes the context of a clause that may contain set-returning functions.
    pub(super) fn sets(clause: &'static str) -> ClauseContext<'q> {
        ClauseContext { allows_sets: true, ..ClauseContext::values(clause) }
    }

    /// Returns the named windows that a call with OVER may refer to. Returns `None` in a clause that may not
    /// contain such a call.
    pub(super) fn windows_allowed(&self) -> Option<&'q [NamedWindow]> {
        self.named
    }

    /// Turns the context of the select list into the context of HAVING. The calls and subqueries collected so
    /// far stay.
    pub(super) fn having(&mut self) {
        self.clause = "HAVING";
        self.allows_clock = true;
        self.allows_sets = false;
        self.named = None;
    }

    /// Makes the error about a column that is neither grouped nor aggregated.
    pub(super) fn ungrouped(&self, column: usize) -> Error {
        let used = self.columns.iter().find(|(c, ..)| *c == column);
        let name = used.map_or_else(|| format!("number {}", column + 1), |(_, n, _)| format!("\"{n}\""));
        let e = Error::grouping(format!(
            "column {name} must appear in the GROUP BY clause or be used in an aggregate function"
        ))
        .hint("Add it to GROUP BY, or group by the primary key of its table.");
        match used.and_then(|(_, _, span)| *span) {
            Some(span) => e.at(span),
            None => e,
        }
    }
}

/// Whether the expression is a comparison.
fn compares(e: &Ast) -> bool {
    match &e.node {
        Node::Binary { op: BinaryOperator::Operator(op), .. } => op.compares(),
        Node::Between { .. } | Node::IsDistinct { .. } => true,
        _ => false,
    }
}

impl Lowerer<'_> {
    /// Lowers an expression. Each aggregate and subquery in the expression becomes a placeholder, and is
    /// collected in `cx`.
    pub(super) fn expr<'q>(&mut self, e: &'q Ast, cx: &mut ClauseContext<'q>) -> Result<Expr> {
        stacker::maybe_grow(256 << 10, 4 << 20, || {
            let outside = cx.allows_clock;
            cx.allows_clock |= cx.allows_timed_conditions && compares(e);
            let lowered = self.expr_here(e, cx);
            cx.allows_clock = outside;
            let result = lowered.and_then(|made| match made.size() > MAX_SIZE {
                true => Err(self.stop(e, format!("an expression of more than {MAX_SIZE} parts"))),
                false => Ok(made),
            });
            match result {
                Err(err) if err.span().is_none() && !err.is_internal() => Err(self.at(err, e)),
                other => other,
            }
        })
    }

    /// Lowers the arguments of COALESCE. An argument is evaluated only if all arguments before it are NULL.
    pub(super) fn first_not_null<'q>(
        &mut self,
        list: Vec<&'q Ast>,
        cx: &mut ClauseContext<'q>,
    ) -> Result<Vec<Expr>> {
        let (mut args, before, sets) = (Vec::new(), cx.guards.len(), cx.sets.len());
        for a in list {
            let value = self.expr(a, cx)?;
            cx.guards.push(value.clone().is_null());
            args.push(value);
        }
        cx.guards.truncate(before);
        self.no_sets(sets, cx, "COALESCE")?;
        Ok(args)
    }

    pub(super) fn exprs<'q>(
        &mut self,
        list: impl IntoIterator<Item = &'q Ast>,
        cx: &mut ClauseContext<'q>,
    ) -> Result<Vec<Expr>> {
        list.into_iter().map(|e| self.expr(e, cx)).collect()
    }

    fn expr_here<'q>(&mut self, e: &'q Ast, cx: &mut ClauseContext<'q>) -> Result<Expr> {
        match &e.node {
            Node::Nested(inner) => self.expr(inner, cx),
            Node::Name(names) => self.name(names, cx),
            Node::Literal(literal) => self.literal(literal, e),
            Node::Binary { left, op, right } => self.binary(e, left, op, right, cx),
            Node::Unary { op, operand } => self.unary(op, operand, cx),
            Node::Is { operand, test, negated } => match test {
                Test::Null => self.null_test(operand, *negated, cx),
                Test::True => self.truth_test(operand, IsTest::True, *negated, cx),
                Test::False => self.truth_test(operand, IsTest::False, *negated, cx),
                Test::Unknown => self.truth_test(operand, IsTest::Null, *negated, cx),
            },
            Node::IsDistinct { left, right, negated } => self.is_distinct(left, right, *negated, cx),
            Node::Between { operand, low, high, negated } => {
                let both = self.between(operand, low, high, cx)?;
                Ok(if *negated { both.negated() } else { both })
            }
            Node::InList { operand, list, negated } => self.among(operand, list, *negated, cx),
            Node::InQuery { operand, query, negated } => {
                let value = self.in_query(operand, query, e, cx)?;
                Ok(if *negated { value.negated() } else { value })
            }
            Node::Exists { query, negated } => {
                let value = self.subquery(query, SubqueryForm::Exists, e, cx)?;
                Ok(if *negated { value.negated() } else { value })
            }
            Node::Subquery(q) => self.subquery(q, SubqueryForm::Scalar, e, cx),
            Node::Quantified { left, op, right, all } => self.any_all(e, left, op, right, *all, cx),
            Node::Cast { operand, ty } => {
                let value = self.expr(operand, cx)?;
                self.cast_to(value, ty, e)
            }
            Node::Case(case) => self.case(case, cx),
            Node::Call(call) => self.function(call, e, cx),
            Node::Array(elements) => {
                let elements = self.exprs(elements, cx)?;
                self.array(elements)
            }
            Node::ArrayOfQuery(aggregate) => self.expr(aggregate, cx),
            Node::Row(parts) => {
                let parts = self.exprs(parts, cx)?;
                self.row_value(parts)
            }
            Node::Access { root, chain } => self.access(e, root, chain, cx),
            Node::Form(form) => self.form(form, e, cx),
            Node::FormOverQuery(name) => Err(self.stop(e, format!("{name}(SELECT …)"))),
            Node::WholeRow(table) => self.row_of(&table.folded(), e),
            Node::Star => Err(self.whole_row(e)),
            Node::TypedLiteral { .. }
            | Node::Interval(_)
            | Node::IsForm { .. }
            | Node::Like { .. }
            | Node::SimilarTo { .. }
            | Node::Collate { .. }
            | Node::AtTimeZone { .. }
            | Node::Extract { .. }
            | Node::Position { .. }
            | Node::Builtin { .. } => self.special(e, cx),
        }
    }

    fn between<'q>(
        &mut self,
        operand: &'q Ast,
        low: &'q Ast,
        high: &'q Ast,
        cx: &mut ClauseContext<'q>,
    ) -> Result<Expr> {
        let (v, l, h) = (self.expr(operand, cx)?, self.expr(low, cx)?, self.expr(high, cx)?);
        let (ge, le) = (self.compare(">=", v.clone(), l)?, self.compare("<=", v, h)?);
        Ok(Expr::and([ge, le]))
    }

    fn in_query<'q>(
        &mut self,
        operand: &'q Ast,
        query: &'q Query,
        e: &'q Ast,
        cx: &mut ClauseContext<'q>,
    ) -> Result<Expr> {
        let lhs = self.exprs(row(operand), cx)?;
        let kind = SubqueryForm::Compare { lhs, op: "=".to_owned(), all: false };
        self.subquery(query, kind, e, cx)
    }

    fn among<'q>(
        &mut self,
        operand: &'q Ast,
        list: &'q [Ast],
        negated: bool,
        cx: &mut ClauseContext<'q>,
    ) -> Result<Expr> {
        let left = self.exprs(row(operand), cx)?;
        let rows: Result<Vec<_>> = list.iter().map(|item| self.list_row(item, left.len(), cx)).collect();
        self.in_list(left, rows?, negated)
    }

    pub(super) fn name(&mut self, names: &[Ident], cx: &mut ClauseContext<'_>) -> Result<Expr> {
        let e = self.column(names)?;
        if !cx.inside_aggregate && cx.allows_aggregates {
            let text = names.iter().map(Ident::folded).collect::<Vec<_>>().join(".");
            let span = match (names.first(), names.last()) {
                (Some(a), Some(b)) => self.span(&a.extent.union(b.extent)),
                _ => None,
            };
            for c in e.columns() {
                cx.columns.push((c, text.clone(), span));
            }
        }
        Ok(e)
    }

    pub(super) fn literal(&mut self, literal: &Literal, place: &impl Place) -> Result<Expr> {
        match literal {
            Literal::Number(n) => literal::number(n).map_err(|e| self.at(e, place)),
            Literal::Boolean(b) => Ok(Expr::bool(*b)),
            Literal::Null => Ok(Expr::null(Type::Unknown)),
            Literal::Parameter(p) => {
                let e = Error::syntax(format!("there is no parameter {p}"));
                Err(self.at(e.hint("Write the value into the query."), place))
            }
            Literal::Bits(bits) => match Type::parse("\"bit\"") {
                Some(ty) => Ok(Expr::literal(Datum::text(bits.as_str()), ty)),
                None => Err(Error::internal("the type bit is not known")),
            },
            Literal::Text(text) => Ok(literal::untyped(text)),
        }
    }

    fn binary<'q>(
        &mut self,
        whole: &'q Ast,
        left: &'q Ast,
        op: &BinaryOperator,
        right: &'q Ast,
        cx: &mut ClauseContext<'q>,
    ) -> Result<Expr> {
        match op {
            BinaryOperator::And | BinaryOperator::Or => {
                let and = *op == BinaryOperator::And;
                let decisive = if and { IsTest::False } else { IsTest::True };
                let (mut terms, before) = (Vec::new(), cx.guards.len());
                for t in chain(whole, op) {
                    let value = self.expr(t, cx)?;
                    let term = self.boolean(value, t, if and { "AND" } else { "OR" })?;
                    let kind = ExprKind::Is { arg: term.clone(), test: decisive, negated: true };
                    cx.guards.push(Expr::new(kind, Type::Bool));
                    terms.push(term);
                }
                cx.guards.truncate(before);
                Ok(if and { Expr::and(terms) } else { Expr::or(terms) })
            }
            BinaryOperator::Overlaps => {
                let (l, r) = (row(left), row(right));
                if l.len() != 2 || r.len() != 2 {
                    let e = Error::syntax("wrong number of parameters on a side of OVERLAPS expression");
                    return Err(self.at(e, whole));
                }
                let periods = self.exprs(l.into_iter().chain(r), cx)?;
                self.builtin("overlaps", periods)
            }
            BinaryOperator::Operator(op) => {
                let (l, r) = (row(left), row(right));
                let name = op.qualified();
                if let ([_], Some(q)) = (l.as_slice(), subquery_of(right)) {
                    // In `x = (SELECT …)`, the right operand is a scalar subquery.
                    let lhs = self.expr(left, cx)?;
                    let rhs = self.subquery(q, SubqueryForm::Scalar, right, cx)?;
                    return self.compare(&name, lhs, rhs);
                }
                if l.len() > 1 || r.len() > 1 {
                    if let Some(q) = subquery_of(right) {
                        let of = l.len();
                        let l = self.exprs(l, cx)?;
                        let field = |at| self.subquery(q, SubqueryForm::Field { at, of }, whole, cx);
                        let r = (0..of).map(field).collect::<Result<Vec<_>>>()?;
                        return self.compare_rows(&name, l, r);
                    }
                    let (l, r) = (self.exprs(l, cx)?, self.exprs(r, cx)?);
                    return self.compare_rows(&name, l, r);
                }
                let (l, r) = (self.expr(left, cx)?, self.expr(right, cx)?);
                let types = [l.ty().clone(), r.ty().clone()];
                self.check_operator(&name, &types, whole)?;
                self.compare(&name, l, r)
            }
        }
    }

    fn unary<'q>(&mut self, op: &UnaryOperator, arg: &'q Ast, cx: &mut ClauseContext<'q>) -> Result<Expr> {
        let value = self.expr(arg, cx)?;
        match op {
            UnaryOperator::Not => Ok(self.boolean(value, arg, "NOT")?.negated()),
            UnaryOperator::Minus => {
                if let (Some(Datum::Int(i)), Node::Literal(_)) = (value.as_literal(), &arg.node) {
                    // The number −2147483648 fits `integer`, though 2147483648 does not.
                    if let (Some(n), Type::Int4 | Type::Int8) = (i.checked_neg(), value.ty()) {
                        return literal::number(&n.unsigned_abs().to_string())
                            .map(|p| Expr::literal(Datum::Int(n), p.ty().clone()));
                    }
                }
                let sig = self.operator("-", &[value.ty().clone()])?;
                self.call(sig, vec![value])
            }
            UnaryOperator::Plus => {
                if value.ty().is_number() {
                    return Ok(value);
                }
                let sig = self.operator("+", &[value.ty().clone()])?;
                self.call(sig, vec![value])
            }
            UnaryOperator::Other(name) => {
                let types = [value.ty().clone()];
                self.check_operator(name, &types, arg)?;
                let sig = self.operator(name, &types)?;
                self.call(sig, vec![value])
            }
        }
    }

    /// Checks that an operand is boolean.
    pub(super) fn boolean(&self, e: Expr, place: &impl Place, what: &str) -> Result<Expr> {
        if !matches!(e.ty(), Type::Bool | Type::Unknown) {
            let m = format!("argument of {what} must be type boolean, not type {}", e.ty());
            return Err(self.at(Error::type_mismatch(m), place));
        }
        self.coerce(e, &Type::Bool)
    }

    /// Lowers `IS [NOT] NULL`. For a row or a composite value, IS NULL tests whether all parts are NULL, and
    /// IS NOT NULL whether no part is NULL.
    fn null_test<'q>(&mut self, a: &'q Ast, negated: bool, cx: &mut ClauseContext<'q>) -> Result<Expr> {
        let parts = match &a.node {
            Node::WholeRow(table) => self.columns_of(&table.folded(), a)?,
            Node::Name(names) => match names.as_slice() {
                [table] if self.names_row(table) => self.columns_of(&[table.folded()], a)?,
                _ => self.exprs([a], cx)?,
            },
            _ => self.exprs(row(a), cx)?,
        };
        let fields = match parts.as_slice() {
            [value] if row_constructor(a).is_none() => self.fields(value),
            _ => None,
        };
        let parts = fields.unwrap_or(parts);
        if parts.iter().any(|e| matches!(e.ty(), Type::Record(_))) {
            return Err(self.stop(a, "IS NULL on a composite value"));
        }
        let test = |e: Expr| if negated { e.is_not_null() } else { e.is_null() };
        Ok(Expr::and(parts.into_iter().map(test)))
    }

    fn truth_test<'q>(
        &mut self,
        a: &'q Ast,
        test: IsTest,
        negated: bool,
        cx: &mut ClauseContext<'q>,
    ) -> Result<Expr> {
        let value = self.expr(a, cx)?;
        let arg = self.boolean(value, a, "IS")?;
        Ok(Expr::new(ExprKind::Is { arg, test, negated }, Type::Bool))
    }

    fn is_distinct<'q>(
        &mut self,
        l: &'q Ast,
        r: &'q Ast,
        same: bool,
        cx: &mut ClauseContext<'q>,
    ) -> Result<Expr> {
        let (l, r) = (self.exprs(row(l), cx)?, self.exprs(row(r), cx)?);
        if l.len() != r.len() {
            return Err(Error::syntax("unequal number of entries in row expressions"));
        }
        let terms: Vec<Expr> =
            l.into_iter().zip(r).map(|(l, r)| self.distinct_from(l, r, same)).collect::<Result<_>>()?;
        Ok(if same { Expr::and(terms) } else { Expr::or(terms) })
    }

    fn list_row<'q>(&mut self, item: &'q Ast, width: usize, cx: &mut ClauseContext<'q>) -> Result<Vec<Expr>> {
        if width == 1 { Ok(vec![self.expr(item, cx)?]) } else { self.exprs(row(item), cx) }
    }

    fn any_all<'q>(
        &mut self,
        whole: &'q Ast,
        left: &'q Ast,
        op: &Operator,
        right: &'q Ast,
        all: bool,
        cx: &mut ClauseContext<'q>,
    ) -> Result<Expr> {
        let name = op.qualified();
        if let Some(q) = subquery_of(right) {
            let lhs = self.exprs(row(left), cx)?;
            return self.subquery(q, SubqueryForm::Compare { lhs, op: name, all }, whole, cx);
        }
        let (l, array) = (self.expr(left, cx)?, self.expr(right, cx)?);
        if let Some(element) = array.ty().element() {
            self.check_operator(&name, &[l.ty().clone(), element.clone()], whole)?;
        }
        self.quantified(&name, l, array, all)
    }

    /// Finds a type by the name that the query gives.
    pub(super) fn type_named(&self, ty: &TypeName) -> Result<Type> {
        ty.resolve(&|schema, name| self.catalog.named_type(schema, name)).map_err(|name| {
            let called = format!("type \"{}\"", name.to_lowercase());
            let e = Error::unknown_object(format!("{called} does not exist"))
                .hint("Only built-in types and those of the catalog are known.")
                .doubted(called, self.catalog.doubt(&name, &[]));
            match ty.object() {
                Some(name) => self.at(e, name),
                None => e,
            }
        })
    }

    /// Whether a type is a domain with constraints, or an array of such a domain. PostgreSQL checks the
    /// constraints in a cast to the type.
    pub(super) fn is_constrained(&self, ty: &TypeName) -> bool {
        let constrained = std::cell::Cell::new(false);
        let look = |schema: Option<&str>, name: &str| {
            constrained.set(constrained.get() || self.catalog.is_constrained(schema, name));
            self.catalog.named_type(schema, name)
        };
        ty.resolve(&look).is_ok() && constrained.get()
    }

    /// Casts to a type that is given by name. If the type is a time type with a precision, the value is
    /// rounded to this precision. The rounding function is the one that PostgreSQL uses.
    pub(super) fn cast_to(&mut self, value: Expr, ty: &TypeName, place: &impl Place) -> Result<Expr> {
        if let Some(fields) = ty.interval_fields() {
            return self.interval_of(value, fields, ty.precision, place);
        }
        let to = self.type_named(ty)?;
        if self.is_constrained(ty) {
            return Err(self.stop(place, format!("a cast to {}, a domain with constraints", ty.text)));
        }
        let value = self.cast(value, &to, place)?;
        let Some(digits) = ty.precision.map(|p| i64::try_from(p).map_or(6, |p| p.min(6))) else {
            return Ok(value);
        };
        let (name, modifier) = match to {
            Type::Timestamp => ("timestamp", digits),
            Type::Timestamptz => ("timestamptz", digits),
            Type::Time => ("time", digits),
            // The modifier of an interval has the mask of all fields in its upper half and the number of
            // digits in its lower half.
            Type::Interval => ("interval", 0x7FFF << 16 | digits),
            // The name of a type that the engine does not know includes its modifier, so the cast rounds the
            // value.
            Type::Other(_) => return Ok(value),
            _ => return Err(self.stop(place, format!("a cast to {}", ty.text))),
        };
        self.builtin(name, vec![value, Expr::literal(Datum::Int(modifier), Type::Int4)])
    }

    /// Lowers an explicit cast.
    pub(super) fn cast(&mut self, value: Expr, ty: &Type, place: &impl Place) -> Result<Expr> {
        if let (Some(Datum::Text(text)), Type::Unknown) = (value.as_literal(), value.ty()) {
            if literal::is_clock(text, ty) {
                let help = "Write the date itself; a stream table changes with its data, not with the clock.";
                let construct = format!("the constant '{text}'");
                self.because(ReasonKind::Never, Cause::Surroundings, place, construct, help);
            }
            let text = text.clone();
            let base = if matches!(ty, Type::Varchar(Some(_)) | Type::Bpchar(_)) { &Type::Text } else { ty };
            return literal::read(&text, base).map(|e| e.cast(ty.clone()));
        }
        match (value.kind(), ty) {
            // ARRAY[]::type[], and constants in an array that is cast, take the element type from the cast.
            (ExprKind::Array(elements), Type::Array(element)) => {
                // An array of arrays has the same type as its elements.
                let of = |e: &Expr| if e.ty().element().is_some() { ty.clone() } else { (**element).clone() };
                let cast: Result<Vec<Expr>> = elements
                    .clone()
                    .into_iter()
                    .map(|e| {
                        let to = of(&e);
                        self.cast(e, &to, place)
                    })
                    .collect();
                Ok(Expr::new(ExprKind::Array(cast?), ty.clone()))
            }
            _ if *value.ty() == Type::Unknown => self.coerce(value, ty),
            _ if value.ty() != ty && self.check_cast(value.ty(), ty).is_err() => {
                let checked = self.check_cast(value.ty(), ty);
                self.located(checked, place).map(|()| value)
            }
            // A text that is cast from a `name` has the collation of `name`.
            (_, text) if value.ty().is_name() && text.is_string() && text.collation().is_none() => {
                let ty = text.collated("\"C\"", true);
                Ok(value.cast(ty))
            }
            // A text keeps its collation when it is cast to another text type.
            _ => {
                let ty = value.ty().recollated(ty);
                Ok(value.cast(ty))
            }
        }
    }

    fn case<'q>(&mut self, case: &'q Case, cx: &mut ClauseContext<'q>) -> Result<Expr> {
        let sets = cx.sets.len();
        let operand = case.operand.as_deref().map(|o| self.expr(o, cx)).transpose()?;
        let (mut conditions, mut values) = (Vec::new(), Vec::new());
        let before = cx.guards.len();
        for w in &case.whens {
            let c = self.expr(&w.condition, cx)?;
            let c = match &operand {
                Some(o) => {
                    let equal = self.compare("=", o.clone(), c);
                    self.located(equal, &w.condition)?
                }
                None => self.boolean(c, &w.condition, "CASE/WHEN")?,
            };
            cx.guards.push(c.clone());
            values.push(self.expr(&w.result, cx)?);
            cx.guards.pop();
            cx.guards.push(Expr::new(
                ExprKind::Is { arg: c.clone(), test: IsTest::True, negated: true },
                Type::Bool,
            ));
            conditions.push(c);
        }
        values.push(match &case.otherwise {
            Some(e) => self.expr(e, cx)?,
            None => Expr::null(Type::Unknown),
        });
        cx.guards.truncate(before);
        self.no_sets(sets, cx, "CASE")?;
        let (mut values, ty) = self.unified("CASE", values)?;
        let otherwise = values.pop().unwrap_or_else(|| Expr::null(ty.clone()));
        let whens = conditions.into_iter().zip(values).collect();
        Ok(Expr::new(ExprKind::Case { whens, otherwise }, ty))
    }

    /// Lowers `ARRAY[…]`. An array of arrays has one dimension more than its elements, but the same type.
    pub(super) fn array(&mut self, elements: Vec<Expr>) -> Result<Expr> {
        let (elements, ty) = self.unified("ARRAY", elements)?;
        let ty = if ty.element().is_some() { ty } else { ty.array() };
        Ok(Expr::new(ExprKind::Array(elements), ty))
    }

    pub(super) fn row_value(&mut self, parts: Vec<Expr>) -> Result<Expr> {
        let parts: Vec<Expr> = parts
            .into_iter()
            .map(|e| if *e.ty() == Type::Unknown { self.coerce(e, &Type::Text) } else { Ok(e) })
            .collect::<Result<_>>()?;
        let ty = Type::Record(parts.iter().map(|e| e.ty().clone()).collect());
        Ok(Expr::new(ExprKind::Row(parts), ty))
    }
}

/// Returns the terms of a chain of one operator, left to right, without recursion.
fn chain<'q>(e: &'q Ast, op: &BinaryOperator) -> Vec<&'q Ast> {
    let (mut terms, mut stack) = (Vec::new(), vec![e]);
    while let Some(e) = stack.pop() {
        match &e.node {
            Node::Binary { left, op: o, right } if o == op => stack.extend([&**right, &**left]),
            Node::Nested(inner) if matches!(&inner.node, Node::Binary { op: o, .. } if o == op) => {
                stack.push(inner);
            }
            _ => terms.push(e),
        }
    }
    terms
}
