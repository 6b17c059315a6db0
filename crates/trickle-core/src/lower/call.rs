//! Lowers calls in the syntax of functions. Other files lower the calls that are aggregates, window function
//! calls, set-returning calls or constructs such as COALESCE.

use super::Lowerer;
use super::clause::ClauseContext;
use super::signature::{named_form, unknown, variadic_form};
use crate::agg::is_aggregate;
use crate::error::{Error, Result};
use crate::expr::{Expr, FuncKind};
use crate::syntax::{Argument, Arguments, Call, Expr as Ast};
use crate::types::{Datum, Type};
use crate::window::FUNCTIONS;

/// The parameter names of `make_interval`.
const INTERVAL: [&str; 7] = ["years", "months", "weeks", "days", "hours", "mins", "secs"];

/// Returns the arguments of a call. Returns `None` unless all of them are plain expressions.
pub(super) fn plain_arguments(call: &Call) -> Option<Vec<&Ast>> {
    let Arguments::List(list) = &call.args else { return None };
    list.iter().map(plain).collect()
}

fn plain(arg: &Argument) -> Option<&Ast> {
    match arg {
        Argument::Value(e) | Argument::Variadic(e) => Some(e),
        Argument::Named { .. } | Argument::Star => None,
    }
}

/// Whether the last argument of a call is marked `VARIADIC`.
pub(super) fn is_variadic(call: &Call) -> bool {
    matches!(call.args.list().last(), Some(Argument::Variadic(_)))
}

/// Whether the only argument of a call is `*`.
fn is_star(f: &Call) -> bool {
    matches!(f.args.list(), [Argument::Star])
}

impl Lowerer<'_> {
    pub(super) fn function<'q>(
        &mut self,
        f: &'q Call,
        e: &'q Ast,
        cx: &mut ClauseContext<'q>,
    ) -> Result<Expr> {
        let (schema, name) = f.name.qualified();
        let builtin = schema.as_deref().is_none_or(|s| s == "pg_catalog");
        if f.over.is_none() && f.within_group.is_empty() && builtin && FUNCTIONS.contains(&name.as_str()) {
            let m = format!("window function {name} requires an OVER clause");
            return Err(self.at(Error::wrong_object(m), e));
        }
        if let (true, Some(value)) = (builtin, self.construct(&name, f, cx)?) {
            return Ok(value);
        }
        if builtin && name == "make_interval" && f.over.is_none() {
            return self.make_interval(f, cx);
        }
        let star = is_star(f);
        let list = match plain_arguments(f) {
            Some(list) => list,
            None if star => Vec::new(),
            None => return self.by_names(f, e, cx),
        };
        if schema.is_none() && name == "grouping" && !f.name.is_quoted() {
            return self.grouping(f, list, e, cx);
        }
        if let Some(over) = &f.over {
            return self.window(f, over, list, e, cx);
        }
        if builtin
            && list.is_empty()
            && cx.allows_clock
            && let Some(time) = self.time(&name, e)
        {
            return Ok(time);
        }
        if builtin && self.unkept(&name, e) {
            self.exprs(list, cx)?;
            return Ok(Expr::null(Type::Unknown));
        }
        let aggregate = builtin && is_aggregate(&name) || f.computed_by.is_some();
        if aggregate && is_variadic(f) {
            return Err(self.stop(e, format!("VARIADIC arguments of {name}")));
        }
        if aggregate || star || !f.within_group.is_empty() || f.filter.is_some() {
            return self.aggregate(&name, schema.as_deref(), f, list, e, cx);
        }
        self.by_signature(f, list, e, cx)
    }

    /// Calls a function with named arguments. Only the catalog of a server knows the names of parameters.
    fn by_names<'q>(&mut self, f: &'q Call, e: &'q Ast, cx: &mut ClauseContext<'q>) -> Result<Expr> {
        let (schema, name) = f.name.qualified();
        let arg = |arg: &'q Argument| match arg {
            Argument::Value(value) => Some((None, value)),
            Argument::Named { name: Some(name), value: Some(value), .. } => {
                Some((Some(name.folded()), value))
            }
            Argument::Named { .. } | Argument::Variadic(_) | Argument::Star => None,
        };
        let is_plain = f.over.is_none() && f.filter.is_none() && f.within_group.is_empty();
        let Some(list) = f.args.list().iter().map(arg).collect::<Option<Vec<_>>>().filter(|_| is_plain)
        else {
            return Err(self.stop(e, format!("named arguments or a subquery as argument of {name}")));
        };
        let args = self.exprs(list.iter().map(|(_, value)| *value), cx)?;
        let types: Vec<Type> = args.iter().map(|a| a.ty().clone()).collect();
        let names: Vec<Option<&str>> = list.iter().map(|(name, _)| name.as_deref()).collect();
        let sig = self.catalog.function_by_names(schema.as_deref(), &name, &names, &types);
        let Some(sig) = sig.filter(|s| s.kind == FuncKind::Scalar) else {
            return Err(self.stop(e, format!("named arguments of {name}")));
        };
        let sig = named_form(&sig, &names);
        self.check_volatility(&sig, e);
        self.call(sig, args)
    }

    /// Calls a function that the catalog describes.
    fn by_signature<'q>(
        &mut self,
        f: &'q Call,
        list: Vec<&'q Ast>,
        e: &'q Ast,
        cx: &mut ClauseContext<'q>,
    ) -> Result<Expr> {
        let (schema, name) = f.name.qualified();
        let args = self.exprs(list.iter().copied(), cx)?;
        let types: Vec<Type> = args.iter().map(|a| a.ty().clone()).collect();
        let sig = match self.signature(schema.as_deref(), &name, &types) {
            Some(sig) if !is_variadic(f) => sig,
            Some(sig) if matches!(sig.kind, FuncKind::Scalar | FuncKind::Aggregate) => variadic_form(&sig),
            Some(_) => return Err(self.stop(e, format!("VARIADIC arguments of {name}"))),
            None if !self.reasons.is_empty() && types.contains(&Type::Unknown) => {
                return Ok(Expr::null(Type::Unknown));
            }
            None => {
                self.known_types(&name, &types, e)?;
                return Err(self.at(unknown(self.catalog, &name, &types), &f.name));
            }
        };
        match sig.kind {
            FuncKind::Aggregate => return self.aggregate(&name, schema.as_deref(), f, list, e, cx),
            FuncKind::Window => {
                self.not_yet(e, format!("the window function {name}()"));
                return Ok(Expr::null(sig.ret.clone()));
            }
            FuncKind::SetReturning => {
                self.check_volatility(&sig, e);
                return self.set(sig, args, e, cx);
            }
            FuncKind::Scalar | FuncKind::Operator | FuncKind::Field | FuncKind::Row => {}
        }
        self.check_volatility(&sig, e);
        self.call(sig, args)
    }

    /// Lowers `make_interval`, whose parameters have names and defaults.
    fn make_interval<'q>(&mut self, f: &'q Call, cx: &mut ClauseContext<'q>) -> Result<Expr> {
        let zero = |part: &&str| {
            if *part == "secs" {
                Expr::literal(Datum::Float(0.0), Type::Float8)
            } else {
                Expr::literal(Datum::Int(0), Type::Int4)
            }
        };
        let mut parts: Vec<Expr> = INTERVAL.iter().map(zero).collect();
        for (i, arg) in f.args.list().iter().enumerate() {
            let (place, value) = match arg {
                Argument::Value(e) => (Some(i), Some(e)),
                Argument::Named { name: Some(name), value, .. } => {
                    (INTERVAL.iter().position(|p| *p == name.folded()), value.as_ref())
                }
                Argument::Named { name: None, value, .. } => (None, value.as_ref()),
                Argument::Variadic(_) | Argument::Star => (None, None),
            };
            let (Some(part), Some(e)) = (place.and_then(|p| parts.get_mut(p)), value) else {
                let arg = self.spelled(arg);
                let m = format!("make_interval() has no argument {arg}, but {}", INTERVAL.join(", "));
                return Err(self.at(Error::unknown_function(m), &f.name));
            };
            let value = self.expr(e, cx)?;
            *part = self.coerce(value, &part.ty().clone())?;
        }
        self.builtin("make_interval", parts)
    }

    /// Returns an argument as it is written, for messages.
    fn spelled(&self, arg: &Argument) -> String {
        match arg {
            Argument::Value(e) | Argument::Variadic(e) => {
                let span = self.span(e).map(|s| s.start..s.end);
                let text = self.source.zip(span).and_then(|(source, span)| source.text().get(span));
                text.unwrap_or("of an expression").to_owned()
            }
            Argument::Named { text, .. } => text.clone(),
            Argument::Star => "*".to_owned(),
        }
    }
}
