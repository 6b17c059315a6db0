//! Lowers set-returning functions in select lists.
//!
//! The calls run in lockstep over each row that results from grouping and windows. Calls that contain no
//! other call run first, then the calls over their results. Calls that are keys of GROUP BY run over the rows
//! before grouping.

use super::Lowerer;
use super::clause::ClauseContext;
use super::coerce::under_collation;
use super::slot::Slot;
use crate::error::{Error, Result};
use crate::expr::{Expr, FuncSig};
use crate::graph::NodeId;
use crate::rel::{Expand, SetCall};
use crate::syntax::{Expr as Ast, Ident, Place};
use crate::types::Type;
use std::sync::Arc;

impl Lowerer<'_> {
    /// Lowers a call of a set-returning function to a placeholder for its value.
    pub(super) fn set(
        &mut self,
        sig: Arc<FuncSig>,
        args: Vec<Expr>,
        e: &Ast,
        cx: &mut ClauseContext<'_>,
    ) -> Result<Expr> {
        let refused = |m: String| Err(self.at(Error::unsupported(m), e));
        if cx.inside_aggregate {
            let help = "You might be able to move the set-returning function into a LATERAL FROM item.";
            let m = "aggregate function calls cannot contain set-returning function calls";
            return Err(self.at(Error::unsupported(m).hint(help), e));
        }
        if cx.inside_window {
            return refused("window function calls cannot contain set-returning function calls".to_owned());
        }
        if !cx.allows_sets {
            return refused(format!("set-returning functions are not allowed in {}", cx.clause));
        }
        let sig = under_collation(sig, &args);
        let args = self.arguments(&sig, args)?;
        let ty = sig.ret.clone();
        if matches!(&ty, Type::Record(fields) if fields.is_empty()) {
            return refused(
                "function returning record called in context that cannot accept type record".to_owned(),
            );
        }
        let call = SetCall { sig, args, defined: false };
        // Equal calls that run in lockstep return the same rows.
        let at = cx.sets.iter().position(|s| *s == call).unwrap_or_else(|| {
            cx.sets.push(call);
            cx.sets.len() - 1
        });
        Ok(Slot::Set(at, 0).expr(ty))
    }

    /// Fails if a set-returning call is inside a construct that evaluates its parts conditionally.
    pub(super) fn no_sets(&self, before: usize, cx: &ClauseContext<'_>, construct: &str) -> Result<()> {
        if cx.sets.len() > before {
            let m = format!("set-returning functions are not allowed in {construct}");
            let help = "You might be able to move the set-returning function into a LATERAL FROM item.";
            return Err(Error::unsupported(m).hint(help));
        }
        Ok(())
    }

    /// Lowers `(f(…)).name`: one column of the rows that a set-returning call returns.
    pub(super) fn set_column(&self, value: &Expr, name: &Ident, cx: &ClauseContext<'_>) -> Option<Expr> {
        let Slot::Set(call, 0) = Slot::of(value.as_column()?) else { return None };
        let (call_at, call) = (call, cx.sets.get(call)?);
        let name = name.folded();
        let column = call.sig.columns.iter().position(|c| **c == *name)?;
        let Type::Record(fields) = value.ty() else { return None };
        Some(Slot::Set(call_at, column).expr(fields.get(column)?.clone()))
    }

    /// Runs the set-returning calls in `exprs` over `node`, beginning with the calls that contain no other
    /// call. Returns the resulting node, and `exprs` rewritten over its columns.
    pub(super) fn in_lockstep(
        &mut self,
        mut node: NodeId,
        mut exprs: Vec<Expr>,
        mut sets: Vec<SetCall>,
        place: &impl Place,
    ) -> Result<(NodeId, Vec<Expr>)> {
        if exprs.iter().chain(sets.iter().flat_map(|s| &s.args)).any(holds_row) {
            return Err(self.stop(place, "rows of a set-returning function as values"));
        }
        let asked = asked(&exprs, &sets);
        let mut values: Vec<Option<usize>> = vec![None; sets.len()];
        loop {
            let ready =
                |i: &usize| asked[*i] && values[*i].is_none() && sets[*i].args.iter().all(|e| !holds_set(e));
            let level: Vec<usize> = (0..sets.len()).filter(ready).collect();
            if level.is_empty() {
                break;
            }
            let mut at = self.graph.schema(node).len();
            for i in &level {
                values[*i] = Some(at);
                at += sets[*i].types().len();
            }
            let calls = level.iter().map(|i| sets[*i].clone()).collect();
            node = self.add(Expand::new(node, calls))?;
            let put = |e: &Expr| put_sets(e, &values);
            exprs = exprs.iter().map(put).collect();
            sets = sets.iter().map(|s| s.map_exprs(put)).collect();
        }
        Ok((node, exprs))
    }
}

/// Whether an expression contains a set-returning call.
pub(super) fn holds_set(e: &Expr) -> bool {
    e.columns().iter().any(|c| matches!(Slot::of(*c), Slot::Set(..)))
}

/// Whether an expression contains the whole row of a set-returning call. A plan has such a row only as
/// separate columns.
fn holds_row(e: &Expr) -> bool {
    let mut found = false;
    e.visit(&mut |n| {
        let set = n.as_column().is_some_and(|c| matches!(Slot::of(c), Slot::Set(..)));
        found |= set && matches!(n.ty(), Type::Record(_));
    });
    found
}

/// Returns for each call whether the expressions contain it, directly or inside the arguments of another
/// call.
pub(super) fn asked(exprs: &[Expr], sets: &[SetCall]) -> Vec<bool> {
    let mut asked: Vec<bool> = vec![false; sets.len()];
    exprs.iter().for_each(|e| note(e, &mut asked));
    for (i, set) in sets.iter().enumerate().rev() {
        if asked[i] {
            set.args.iter().for_each(|e| note(e, &mut asked));
        }
    }
    asked
}

fn note(e: &Expr, asked: &mut [bool]) {
    e.each_column(|c| {
        if let Slot::Set(i, _) = Slot::of(c)
            && let Some(asked) = asked.get_mut(i)
        {
            *asked = true;
        }
    });
}

/// Replaces the placeholders for calls by the columns of these calls.
fn put_sets(e: &Expr, values: &[Option<usize>]) -> Expr {
    e.rewrite(&mut |n| match n.as_column().map(Slot::of) {
        Some(Slot::Set(i, column)) => match values.get(i).copied().flatten() {
            Some(at) => Expr::column(at + column, n.ty().clone()),
            None => n,
        },
        _ => n,
    })
}
