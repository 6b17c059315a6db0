//! Lowers the constructs that compute values and are no functions: CASE, COALESCE, NULLIF, GREATEST, LEAST,
//! ARRAY and ROW.

use super::Lowerer;
use super::call::plain_arguments;
use super::clause::ClauseContext;
use crate::error::{Error, Result};
use crate::expr::{Expr, ExprKind, IsTest};
use crate::syntax::{Arguments, Call, Case, Expr as Ast};
use crate::types::Type;
use crate::verdict::ReasonKind;

impl Lowerer<'_> {
    pub(super) fn case<'q>(&mut self, case: &'q Case, cx: &mut ClauseContext<'q>) -> Result<Expr> {
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
}

/// Returns the parts of `ROW(…)`. Returns `None` for any other call.
pub(super) fn row_constructor(call: &Call) -> Option<Vec<&Ast>> {
    let (schema, name) = call.name.qualified();
    if schema.is_some() || name != "row" || call.name.is_quoted() {
        return None;
    }
    plain_arguments(call)
}

impl Lowerer<'_> {
    /// Lowers constructs that are written like calls but are no functions, such as COALESCE; returns `None`
    /// for any other call.
    pub(super) fn construct<'q>(
        &mut self,
        name: &str,
        f: &'q Call,
        cx: &mut ClauseContext<'q>,
    ) -> Result<Option<Expr>> {
        let known = matches!(name, "coalesce" | "nullif" | "greatest" | "least" | "row" | "array");
        if !known || f.name.is_quoted() || f.name.parts.len() > 1 {
            return Ok(None);
        }
        let upper = name.to_ascii_uppercase();
        if let (Arguments::Query(q), "array") = (&f.args, name) {
            let help =
                "Select what it is ordered by too, and build the array of that with array_agg(… ORDER BY …).";
            self.reason(ReasonKind::NotYet, &**q, "ARRAY(subquery) in an order that it does not give", help);
            return Err(Error::internal("lowering stopped at the order of an array"));
        }
        let Some(list) = plain_arguments(f) else { return Ok(None) };
        let args = match name {
            "coalesce" => self.first_not_null(list, cx)?,
            _ => self.exprs(list, cx)?,
        };
        match name {
            "coalesce" | "greatest" | "least" => {
                if args.is_empty() {
                    return Err(Error::syntax(format!("{upper} needs an argument")));
                }
                let (args, ty) = self.unified(&upper, args)?;
                if name != "coalesce" && !ty.is_ordered() {
                    return Err(self.no_order(&ty));
                }
                let kind = match name {
                    "coalesce" => ExprKind::Coalesce(args),
                    _ => ExprKind::Extreme { greatest: name == "greatest", args },
                };
                Ok(Some(Expr::new(kind, ty)))
            }
            "nullif" => match <[Expr; 2]>::try_from(args) {
                Ok([l, r]) => {
                    let equal = self.compare("=", l.clone(), r)?;
                    let ty = if *l.ty() == Type::Unknown { Type::Text } else { l.ty().clone() };
                    let l = self.coerce(l, &ty)?;
                    let kind = ExprKind::Case { whens: vec![(equal, Expr::null(ty.clone()))], otherwise: l };
                    Ok(Some(Expr::new(kind, ty)))
                }
                Err(_) => Err(Error::syntax("NULLIF takes two arguments")),
            },
            "row" => self.row_value(args).map(Some),
            _ => Ok(None),
        }
    }

    /// Lowers the arguments of COALESCE. An argument is evaluated only if all arguments before it are NULL.
    fn first_not_null<'q>(&mut self, list: Vec<&'q Ast>, cx: &mut ClauseContext<'q>) -> Result<Vec<Expr>> {
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
