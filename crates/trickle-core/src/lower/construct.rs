//! Lowers the constructs that are written like calls but are no functions, such as COALESCE.

use super::Lowerer;
use super::call::plain_arguments;
use super::expr::ClauseContext;
use crate::error::{Error, Result};
use crate::expr::{Expr, ExprKind};
use crate::syntax::{Arguments, Call, Expr as Ast};
use crate::types::Type;
use crate::verdict::ReasonKind;

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
}
