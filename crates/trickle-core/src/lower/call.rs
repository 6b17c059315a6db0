//! Lowers function calls: built-in functions, aggregates, functions of the catalog. Refuses a call if no
//! stream table can keep its result up to date.

use super::expr::ClauseContext;
use super::scope::hint;
use super::slot::{Slot, reads_outer};
use super::subquery::Pending;
use super::{Level, Lowerer, WITHOUT};
use crate::agg::{AggCall, FAMILIES, OrderOf, facts, is_aggregate, resolve, resolve_ordered};
use crate::catalog::Catalog;
use crate::error::{Error, Result};
use crate::expr::functions::{Unkept, reads_settings_alone, resolve_function, signatures, unkept};
use crate::expr::{Expr, ExprKind, FormPiece, FuncKind, FuncSig, SortKey, Volatility};
use crate::syntax::{Argument, Arguments, Call, Expr as Ast, Node, OrderItem, Place, Sort};
use crate::types::{Datum, Type};
use crate::verdict::{Cause, Reason, ReasonKind};
use crate::window::FUNCTIONS;
use std::sync::Arc;

/// The parameter names of `make_interval`.
const INTERVAL: [&str; 7] = ["years", "months", "weeks", "days", "hours", "mins", "secs"];
/// The advice for a result that depends on the transaction's time and that no delta can bring up to date.
const TIMED: &str = "Compare it with columns: a delta keeps conditions on the clock. Else compute it in a view of the stream table, or refresh the table in full.";
/// Set-returning functions whose columns are the fields of a composite type.
const SETS: &[&str] = &["json_populate_recordset", "jsonb_populate_recordset"];

/// Makes the error that a function does not exist for arguments of these types.
pub(super) fn unknown(catalog: &dyn Catalog, name: &str, types: &[Type]) -> Error {
    let list: Vec<String> = types.iter().map(ToString::to_string).collect();
    let call = format!("function {name}({})", list.join(", "));
    let e = Error::unknown_function(format!("{call} does not exist"))
        .hint("No function matches the name and argument types; a cast may help.")
        .doubted(call, catalog.doubt(name, types));
    let mut near: Vec<&str> = signatures().map(|(name, _)| name).collect();
    near.extend(FAMILIES.iter().flat_map(|f| f.names()));
    near.dedup();
    hint(e, name, near.into_iter())
}

/// Returns the parts of `ROW(…)`. Returns `None` for any other call.
pub(super) fn row_constructor(call: &Call) -> Option<Vec<&Ast>> {
    let (schema, name) = call.name.qualified();
    if schema.is_some() || name != "row" || call.name.is_quoted() {
        return None;
    }
    plain_arguments(call)
}

/// Returns the arguments of a call. Returns `None` unless all of them are plain expressions.
fn plain_arguments(call: &Call) -> Option<Vec<&Ast>> {
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
fn is_variadic(call: &Call) -> bool {
    matches!(call.args.list().last(), Some(Argument::Variadic(_)))
}

/// Makes a signature whose calls are always printed as `f(…, VARIADIC a)`.
fn variadic_form(sig: &FuncSig) -> Arc<FuncSig> {
    let word = |text: &str| FormPiece::Word(text.into());
    let mut form = Vec::new();
    if let Some(schema) = &sig.schema {
        form.extend([FormPiece::Name(schema.clone()), word(".")]);
    }
    form.extend([FormPiece::Name(sig.name.clone()), word("(")]);
    for at in (0..sig.args.len()).rev() {
        form.extend((at == 0).then(|| word("VARIADIC")));
        form.push(FormPiece::Argument);
        form.push(word(if at == 0 { ")" } else { "," }));
    }
    Arc::new(FuncSig { form, ..sig.clone() })
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
            None => return Err(self.stop(e, format!("named arguments or a subquery as argument of {name}"))),
        };
        if schema.is_none() && name == "grouping" && !f.name.is_quoted() {
            return self.grouping(f, list, e, cx);
        }
        if let Some(over) = &f.over {
            return self.window(f, over, list, e, cx);
        }
        if builtin
            && list.is_empty()
            && cx.allows_clock()
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
            Some(sig) if is_variadic(f) && sig.kind != FuncKind::Scalar => {
                return Err(self.stop(e, format!("VARIADIC arguments of {name}")));
            }
            Some(sig) if is_variadic(f) => variadic_form(&sig),
            Some(sig) => sig,
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

    /// Finds the signature for a call of the function `name` with arguments of these types.
    pub(super) fn signature(&self, schema: Option<&str>, name: &str, types: &[Type]) -> Option<Arc<FuncSig>> {
        let builtin = schema.is_none_or(|s| s == "pg_catalog");
        let found = if builtin { resolve_function(name, types) } else { None };
        found
            .map(|sig| self.by_fields(sig))
            .or_else(|| self.recordset(name, types).filter(|_| builtin))
            .or_else(|| self.catalog.function(schema, name, types))
    }

    /// Turns the signature of a function that returns a set of composite values into a signature that returns
    /// rows. Thus `unnest(array)` returns one column for each field of the array's elements.
    fn by_fields(&self, sig: Arc<FuncSig>) -> Arc<FuncSig> {
        if sig.kind != FuncKind::SetReturning || !matches!(&sig.ret, Type::Other(_)) {
            return sig;
        }
        match self.record_of(&sig.ret) {
            Some((columns, ret)) => Arc::new(FuncSig { columns, ret, ..(*sig).clone() }),
            None => sig,
        }
    }

    /// Returns the names of a composite type's fields, and the record type that they form.
    fn record_of(&self, row: &Type) -> Option<(Vec<Arc<str>>, Type)> {
        let (columns, fields): (_, Vec<Type>) = self.catalog.fields(row)?.into_iter().unzip();
        Some((columns, Type::Record(fields.into())))
    }

    /// Makes the signature of `jsonb_populate_recordset(NULL::type, …)`. The columns of the result are the
    /// fields of `type`.
    fn recordset(&self, name: &str, types: &[Type]) -> Option<Arc<FuncSig>> {
        let [row, json] = types else { return None };
        if !SETS.contains(&name) {
            return None;
        }
        let (columns, ret) = self.record_of(row)?;
        let json = if *json != Type::Unknown { json.clone() } else { Type::Jsonb };
        let sig = FuncSig::unknown(None, name, vec![row.clone(), json], ret);
        let (kind, volatility) = (FuncKind::SetReturning, Volatility::Stable);
        Some(Arc::new(FuncSig { kind, columns, volatility, ..sig }))
    }

    /// Stops lowering at an unknown function or operator, if the engine knows only the name of an operand's
    /// type, since PostgreSQL may have this function or operator. If no server was asked, the noted reason
    /// says that a server may have it.
    pub(super) fn known_types(&mut self, name: &str, types: &[Type], place: &impl Place) -> Result<()> {
        fn foreign(t: &Type) -> bool {
            matches!(t, Type::Other(_)) || t.element().is_some_and(foreign)
        }
        let Some(t) = types.iter().find(|t| foreign(t)) else { return Ok(()) };
        let construct = format!("{name} over type {t}");
        match self.catalog.doubt(name, types) {
            Some(why) => {
                self.because(ReasonKind::NotYet, Cause::Undecided, place, construct, &why);
                Err(Error::internal("lowering stopped at what only a server knows"))
            }
            None => Err(self.stop(place, construct)),
        }
    }

    /// Notes a reason for a function whose result may change while its arguments stay the same.
    pub(super) fn check_volatility(&mut self, sig: &FuncSig, e: &impl Place) {
        match sig.volatility {
            Volatility::Volatile => {
                let help =
                    "Mark the function IMMUTABLE if it is, or compute the value where the row is written.";
                self.volatile(&sig.name, e, help);
            }
            Volatility::Stable if sig.is_operator() => {
                let construct = format!("the stable operator {}", sig.name);
                self.because(ReasonKind::NotYet, Cause::Surroundings, e, construct, WITHOUT);
            }
            Volatility::Stable if !reads_settings_alone(sig) => self.stable(&sig.name, e),
            Volatility::Stable | Volatility::Immutable => {}
        }
    }

    fn volatile(&mut self, name: &str, e: &impl Place, help: &str) {
        let construct = format!("the volatile function {name}()");
        self.because(ReasonKind::Never, Cause::Volatile, e, construct, help);
    }

    fn stable(&mut self, name: &str, e: &impl Place) {
        let construct = format!("the stable function {name}()");
        self.because(ReasonKind::NotYet, Cause::Surroundings, e, construct, WITHOUT);
    }

    /// Replaces a call of a function that returns the transaction's time, such as `now()`, by the time of the
    /// refresh. Stores a reason, which is reported if no delta can bring this use of the time up to date.
    fn time(&mut self, name: &str, e: &impl Place) -> Option<Expr> {
        let value = match unkept(name)? {
            Unkept::Time(None) => Expr::now(),
            Unkept::Time(Some(ty)) => Expr::now().cast(ty),
            Unkept::Clock | Unkept::Random | Unkept::SearchPath | Unkept::Surroundings => return None,
        };
        self.timed = Some(self.timed(name, e));
        Some(value)
    }

    fn timed(&self, name: &str, e: &impl Place) -> Reason {
        Reason {
            span: self.span(e),
            kind: ReasonKind::NotYet,
            cause: Cause::Surroundings,
            construct: format!("the stable function {name}()"),
            help: TIMED.to_owned(),
        }
    }

    /// Notes a reason for a built-in function whose result no stream table can keep up to date. Returns
    /// whether `name` is the name of such a function.
    pub(super) fn unkept(&mut self, name: &str, e: &impl Place) -> bool {
        match unkept(name) {
            Some(Unkept::Clock) => {
                self.volatile(name, e, "now() is the time of the refresh, and may be compared with columns.");
            }
            Some(Unkept::Random) => {
                self.volatile(
                    name,
                    e,
                    "Compute the value where the row is written, and store it in a column.",
                );
            }
            Some(Unkept::Time(_)) => {
                let reason = self.timed(name, e);
                self.note(reason);
            }
            Some(Unkept::SearchPath) => {
                let construct = format!("the function {name}()");
                let help = "Write the name of the schema instead.";
                self.because(ReasonKind::Never, Cause::SearchPath, e, construct, help);
            }
            Some(Unkept::Surroundings) => self.stable(name, e),
            None => return false,
        }
        true
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

    /// Lowers constructs that are written like calls but are no functions, such as COALESCE; returns `None`
    /// for any other call.
    fn construct<'q>(&mut self, name: &str, f: &'q Call, cx: &mut ClauseContext<'q>) -> Result<Option<Expr>> {
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

    fn aggregate<'q>(
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
        let user = || self.catalog.function(schema, name, &types).filter(|s| s.kind == FuncKind::Aggregate);
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

    pub(super) fn sort_key<'q>(&mut self, key: &'q OrderItem, cx: &mut ClauseContext<'q>) -> Result<SortKey> {
        let expr = self.expr(&key.expr, cx)?;
        let expr = if *expr.ty() == Type::Unknown { self.coerce(expr, &Type::Text)? } else { expr };
        self.sortable(expr.ty(), &key.expr)?;
        let (descending, nulls_first) = self.direction(key)?;
        Ok(SortKey { expr, descending, nulls_first })
    }

    /// Fails if values of the type cannot be sorted.
    pub(super) fn sortable(&self, ty: &Type, place: &Ast) -> Result<()> {
        if ty.is_ordered() {
            return Ok(());
        }
        Err(self.at(self.no_order(ty), place))
    }

    fn no_order(&self, ty: &Type) -> Error {
        let e = Error::unknown_function(format!("could not identify an ordering operator for type {ty}"));
        match self.catalog.is_opaque(ty) {
            true => {
                e.doubted(format!("an order of type {ty}"), self.catalog.doubt("", std::slice::from_ref(ty)))
            }
            false => e,
        }
    }

    /// Returns whether a sort key is descending, and whether NULLs come first.
    pub(super) fn direction(&mut self, key: &OrderItem) -> Result<(bool, bool)> {
        let descending = match key.sort {
            Sort::Ascending => false,
            Sort::Descending => true,
            Sort::Using => return Err(self.stop(&key.expr, "ORDER BY … USING")),
        };
        Ok((descending, key.nulls_first.unwrap_or(descending)))
    }
}

/// Whether the only argument of a call is `*`.
fn is_star(f: &Call) -> bool {
    matches!(f.args.list(), [Argument::Star])
}
