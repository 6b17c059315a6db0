//! Lowers calls of aggregates.

use super::call::is_variadic;
use super::clause::ClauseContext;
use super::signature::{unknown, variadic_form};
use super::slot::{Slot, reads_outer};
use super::subquery::Pending;
use super::{Level, Lowerer};
use crate::agg::{AggCall, OrderOf, facts, is_aggregate, resolve, resolve_ordered};
use crate::error::{Error, Result};
use crate::expr::{Expr, FuncKind, FuncSig};
use crate::syntax::{Argument, Call, Expr as Ast, Node};
use crate::types::Type;
use std::sync::Arc;

impl Lowerer<'_> {
    pub(super) fn aggregate<'q>(
        &mut self,
        name: &str,
        schema: Option<&str>,
        f: &'q Call,
        list: Vec<&'q Ast>,
        e: &'q Ast,
        cx: &mut ClauseContext<'q>,
    ) -> Result<Expr> {
        if cx.inside_aggregate {
            return Err(self.at(Error::grouping("aggregate function calls cannot be nested"), e));
        }
        if !cx.allows_aggregates {
            let m = format!("aggregate functions are not allowed in {}", cx.clause);
            return Err(self.at(Error::grouping(m), e));
        }
        // The arguments of an aggregate are computed for each row, before grouping. Aggregates and subqueries
        // in the arguments are therefore collected separately from those elsewhere in the clause.
        let mut inner: ClauseContext<'q> = ClauseContext::values("an aggregate");
        inner.inside_aggregate = true;
        let frame = self.frames.len().saturating_sub(1);
        self.levels.push(Level { frame, read: None });
        let result = self.aggregate_parts(name, schema, f, list, e, &mut inner);
        let level = self.levels.pop();
        let mut call = match result? {
            Ok(call) => call,
            Err(guess) => return Ok(guess),
        };
        self.inherit_order(&mut call, e);
        let base = cx.subqueries.len();
        let moved: Vec<Pending<'q>> = inner.subqueries;
        if !moved.is_empty() {
            call = call.map_exprs(|e| {
                e.map_columns(|c| match Slot::of(c) {
                    Slot::Subquery(i) => Slot::Subquery(i + base).expr(Type::Bool).as_column().unwrap_or(c),
                    _ => c,
                })
            });
            cx.subqueries.extend(moved);
        }
        let ty = call.sig.ret.clone();
        if level.and_then(|l| l.read).is_some_and(|read| read < frame) {
            return Err(self.stop(e, "an aggregate over columns of an enclosing query"));
        }
        if let (true, Some(top)) = (call.exprs().any(reads_outer), self.frames.last_mut()) {
            top.direct_failed = true;
        }
        let at = cx.aggregates.iter().position(|a| *a == call).unwrap_or_else(|| {
            cx.aggregates.push(call);
            cx.aggregates.len() - 1
        });
        Ok(Slot::Aggregate(at).expr(ty))
    }

    /// Gives the order of FROM to an aggregate without ORDER BY, if its value depends on the order of its
    /// rows.
    fn inherit_order(&mut self, call: &mut AggCall, place: &Ast) {
        let minds = facts(&call.sig).order == OrderOf::Matters;
        if call.order_by.is_empty() && !call.distinct && minds {
            call.order_by = self.order_of_from(&format!("{}()", call.sig.name), place);
        }
    }

    /// Returns the column to count for `count(t)` and `count(t.*)`. These calls count the rows of `t` that an
    /// outer join did not pad. Counting a column that is NULL only in padded rows gives the same number.
    /// Returns `None` for a call with any other argument.
    fn counted_row(&mut self, name: &str, schema: Option<&str>, f: &Call) -> Result<Option<Expr>> {
        let [Argument::Value(arg)] = f.args.list() else { return Ok(None) };
        let qualifier = match &arg.node {
            Node::WholeRow(table) => table.folded(),
            Node::Name(names) => match names.as_slice() {
                [table] if self.names_row(table) => vec![table.folded()],
                _ => return Ok(None),
            },
            _ => return Ok(None),
        };
        let count = name == "count" && schema.is_none_or(|s| s == "pg_catalog");
        match self.never_null(&qualifier) {
            Some(column) if count && !f.distinct => self.column(&column).map(Some),
            _ => Ok(None),
        }
    }

    /// Lowers a call of an aggregate. For an aggregate that the engine does not know, a reason is noted and
    /// NULL is returned in place of the call.
    pub(super) fn aggregate_parts<'q>(
        &mut self,
        called: &str,
        schema: Option<&str>,
        f: &'q Call,
        list: Vec<&'q Ast>,
        e: &'q Ast,
        cx: &mut ClauseContext<'q>,
    ) -> Result<Result<AggCall, Expr>> {
        let args = match self.counted_row(called, schema, f)? {
            Some(present) => vec![present],
            None => self.exprs(list, cx)?,
        };
        let types: Vec<Type> = args.iter().map(|a| a.ty().clone()).collect();
        let json = if types.contains(&Type::Jsonb) { "jsonb" } else { "json" };
        let name = f.computed_by.as_ref().map(|function| function.replace('?', json));
        let name = name.as_deref().unwrap_or(called);
        let filter = match &f.filter {
            Some(c) => {
                let value = self.expr(c, cx)?;
                Some(self.boolean(value, &**c, "FILTER")?)
            }
            None => None,
        };
        let distinct = f.distinct;
        let within_group = !f.within_group.is_empty();
        let mut order_by = Vec::new();
        for key in if within_group { &f.within_group } else { &f.order_by } {
            order_by.push(self.sort_key(key, cx)?);
        }
        let builtin = schema.is_none_or(|s| s == "pg_catalog");
        let keys: Vec<Type> = order_by.iter().map(|k| k.expr.ty().clone()).collect();
        let found = match (builtin, within_group) {
            (true, true) => resolve_ordered(name, &types, &keys),
            (true, false) => self.resolve_aggregate(name, &types),
            (false, _) => None,
        };
        let user = || {
            let sig =
                self.catalog.function(schema, name, &types).filter(|s| s.kind == FuncKind::Aggregate)?;
            Some(if is_variadic(f) { variadic_form(&sig) } else { sig })
        };
        let Some(sig) = found.or_else(user) else {
            if builtin && is_aggregate(name) && (within_group || resolve(name, &[Type::Int4]).is_none()) {
                self.not_yet(e, format!("the aggregate {name}()"));
                return Ok(Err(Expr::null(Type::Unknown)));
            }
            if !self.reasons.is_empty() && types.contains(&Type::Unknown) {
                return Ok(Err(Expr::null(Type::Unknown)));
            }
            self.known_types(name, &types, e)?;
            return Err(self.at(unknown(self.catalog, name, &types), &f.name));
        };
        let args = self.arguments(&sig, args)?;
        if let Some(a) = args.iter().find(|a| distinct && !a.ty().has_equality()) {
            return Err(self.without_equality(a.ty(), "An argument with DISTINCT", e));
        }
        Ok(Ok(AggCall { sig, args, distinct, filter, order_by, within_group }))
    }

    /// Finds the aggregate for arguments of these types. Untyped literals count as `text`. If there is no
    /// aggregate for exactly these types, text types are replaced by `text`, and all other types lose their
    /// modifiers.
    fn resolve_aggregate(&self, name: &str, types: &[Type]) -> Option<Arc<FuncSig>> {
        let typed: Vec<Type> =
            types.iter().map(|t| if *t == Type::Unknown { Type::Text } else { t.clone() }).collect();
        let collated = types.iter().find(|t| t.collation().is_some());
        let texts = || {
            let text = |t: &Type| match t.uncollated() {
                t if t.is_string() => Type::Text,
                t => t.base(),
            };
            let sig = resolve(name, &typed.iter().map(text).collect::<Vec<Type>>())?;
            let ret = collated.map_or_else(|| sig.ret.clone(), |c| c.recollated(&sig.ret));
            Some(if ret == sig.ret { sig } else { Arc::new(FuncSig { ret, ..(*sig).clone() }) })
        };
        resolve(name, &typed).or_else(texts)
    }
}
