//! Lowers functions in FROM. ([`super::lockstep`] lowers set-returning functions in select lists.)
//!
//! A function in FROM reads the rows of the items before it, and is lowered to an [`Expand`] over these
//! items. Under an outer join with a condition, these items are in the other operand of the join. A function
//! in such a join is lowered over the distinct values that it reads. Its rows are then joined back, as for a
//! LATERAL subquery.

use super::Lowerer;
use super::clause::ClauseContext;
use super::coerce::under_collation;
use super::from::Build;
use super::group::with_args;
use super::outer_column::{Domain, Outer};
use super::relation::{Relation, RowOrder};
use super::scope::{Item, Named, Scope};
use super::slot::{Slot, reads_outer, shift};
use super::source::Source;
use crate::error::{Error, Result};
use crate::expr::{Expr, FuncKind, FuncSig, SortKey};
use crate::graph::NodeId;
use crate::rel::{Expand, Map, SetCall, Values};
use crate::syntax::{AliasColumn, Argument, Expr as Ast, Form, Functions, TableCall, TableKind, TableRef};
use crate::types::Type;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A call in FROM, as it is written.
struct Written<'q> {
    schema: Option<String>,
    name: String,
    args: Vec<&'q Ast>,
    /// The column definition list, for a function that leaves its columns to the caller.
    definition: Vec<(Arc<str>, Type)>,
    /// A call that has a special grammar.
    form: Option<&'q Form>,
}

/// The functions of one item of FROM.
pub(super) struct FunctionItem<'q> {
    table: &'q TableRef,
    functions: &'q Functions,
    ordinality: bool,
}

impl<'q> FunctionItem<'q> {
    pub(super) fn new(table: &'q TableRef, functions: &'q Functions, ordinality: bool) -> FunctionItem<'q> {
        FunctionItem { table, functions, ordinality }
    }

    /// Returns the functions of an item of FROM. Returns `None` for an item that is no call.
    pub(super) fn of(table: &'q TableRef) -> Option<FunctionItem<'q>> {
        match &table.kind {
            TableKind::Functions { functions, ordinality } => {
                Some(FunctionItem::new(table, functions, *ordinality))
            }
            TableKind::Named { .. } | TableKind::Query { .. } | TableKind::Nested(_) => None,
        }
    }

    /// Returns the column definitions of the alias, if the alias gives types to its columns. Otherwise
    /// returns no definitions.
    fn definition(&self) -> &'q [AliasColumn] {
        let columns = self.table.alias.as_ref().map_or(&[][..], |a| &a.columns);
        if columns.iter().any(|c| c.ty.is_some()) { columns } else { &[] }
    }
}

/// The calls of an item of FROM. Their arguments read columns of FROM.
struct Calls<'q> {
    /// The columns that the calls read, ascending.
    columns: Vec<usize>,
    calls: Vec<SetCall>,
    /// The context with which the arguments were lowered. It contains the subqueries of the arguments.
    cx: ClauseContext<'q>,
    /// The names of the calls' columns.
    names: Vec<Arc<str>>,
    /// The name of the item.
    called: Arc<str>,
    /// Whether the rows are numbered: for WITH ORDINALITY, or to keep the order of the rows if the item is
    /// the whole of FROM.
    numbered: bool,
}

impl Calls<'_> {
    fn expand(&self, node: NodeId, place: impl Fn(usize) -> usize, outer: bool) -> Expand {
        let calls = self.calls.iter().map(|c| c.map_exprs(|e| e.map_columns(&place))).collect();
        Expand::new(node, calls).numbered(self.numbered).outer(outer)
    }
}

impl Lowerer<'_> {
    /// Lowers the functions of an item of FROM, appends the item, and returns the scope of its names.
    pub(super) fn functions(&mut self, f: &FunctionItem<'_>, build: &mut Build) -> Result<Scope> {
        let mut calls = self.calls(f)?;
        if let Some(scope) = self.in_place(&mut calls, build, false)? {
            return Ok(scope);
        }
        if !calls.cx.subqueries.is_empty() {
            return Err(self.stop(f.table, "a subquery as argument of a function under an outer join"));
        }
        let domain = self.read_domain(&calls.columns, build, f.table)?;
        let node = domain.node.ok_or_else(|| Error::internal("no domain"))?;
        let place = |c: usize| domain.refs.iter().position(|o| o.column == c && !o.image).unwrap_or(0);
        let node = self.add(calls.expand(node, place, false))?;
        let relation = Relation::new(node, calls.names);
        self.append(Source::derived(relation, domain.refs), &calls.called, None, build)
    }

    /// Lowers `… LEFT JOIN LATERAL f(…) ON true` over the items before the function; returns `None` if the
    /// function cannot be placed over these items alone.
    pub(super) fn functions_or_nulls(
        &mut self,
        f: &FunctionItem<'_>,
        build: &mut Build,
    ) -> Result<Option<Scope>> {
        let mut calls = self.calls(f)?;
        self.in_place(&mut calls, build, true)
    }

    /// Places the calls over the items that they read. The first item of FROM that the calls read, and all
    /// items after it, are merged into one. Returns `None` if the calls read an item in the other operand of
    /// an outer join.
    fn in_place(&mut self, calls: &mut Calls<'_>, build: &mut Build, outer: bool) -> Result<Option<Scope>> {
        let holder = |c: &usize| build.factors.iter().position(|p| p.holds(*c));
        let first = calls.columns.iter().filter_map(holder).min();
        let last = build.factors.len().checked_sub(1).filter(|l| *l >= build.floor);
        let asks = !calls.cx.subqueries.is_empty();
        // A subquery in an argument counts columns from the first item of FROM. All items would have to be
        // merged, but the items before the floor are in the other operand.
        if asks && build.floor > 0 {
            return Ok(None);
        }
        let first = if asks { last.map(|_| 0) } else { first.or(last.filter(|_| outer)) };
        if first.is_some_and(|f| f < build.floor) || outer && first.is_none() {
            return Ok(None);
        }
        match first {
            None => {
                let unit = self.add(Values::unit())?;
                build.push(unit, 0);
            }
            Some(first) if first + 1 < build.factors.len() => self.merge(build, first)?,
            Some(_) => {}
        }
        let Some(mut factor) = build.factors.pop() else {
            return Err(Error::internal("no item before a function"));
        };
        build.links = 0;
        let offset = factor.offset;
        if asks {
            // All items are merged into one, which has all columns of FROM.
            let args = calls.calls.iter().flat_map(|c| c.args.clone()).collect();
            let cx = std::mem::replace(&mut calls.cx, ClauseContext::new("functions in FROM"));
            let (node, args) = self.settle(factor.node, args, cx)?;
            calls.calls = with_args(&calls.calls, args);
            factor.node = node;
        }
        let before = self.graph.schema(factor.node).len();
        factor.node = self.add(calls.expand(factor.node, |c| c - offset, outer))?;
        let schema = self.graph.schema(factor.node);
        factor.width = schema.len();
        let names = std::mem::take(&mut calls.names).into_iter().zip(before..schema.len());
        let named = |(name, c)| Named { name, expr: shift(&schema.expr(c), offset as isize) };
        let columns = names.map(named).collect();
        let sets = calls.calls.iter().any(|c| c.sig.kind == FuncKind::SetReturning);
        let order = match (calls.numbered, sets) {
            (true, _) => {
                let expr = shift(&schema.expr(schema.len() - 1), offset as isize);
                RowOrder::By(vec![SortKey { expr, descending: false, nulls_first: false }])
            }
            (false, true) => RowOrder::Hidden,
            (false, false) => RowOrder::Any,
        };
        self.set_order(order);
        build.factors.push(factor);
        Ok(Some(Scope::of_item(Item::of(calls.called.clone(), columns))))
    }

    /// Returns the domain of these columns of FROM: their distinct values.
    fn read_domain(&mut self, columns: &[usize], build: &mut Build, place: &TableRef) -> Result<Domain> {
        let frame = self.frames.len() - 1;
        let Some((node, offset)) = self.holder(columns, build)? else {
            return Err(self.stop(place, "LATERAL that uses a table outside its join"));
        };
        let schema = self.graph.schema(node).clone();
        let (mut refs, mut exprs) = (Vec::new(), Vec::new());
        for c in columns {
            let value = schema.expr(c - offset);
            let outer = |image| Outer { frame, column: *c, ty: value.ty().clone(), image };
            refs.extend(std::iter::once(outer(false)).chain(value.image().map(|_| outer(true))));
            exprs.extend(std::iter::once(value.clone()).chain(value.image()));
        }
        let mapped = self.add(Map::new(node, exprs))?;
        Ok(Domain { refs, node: Some(self.domain(mapped, place)?) })
    }

    /// Lowers the calls of an item of FROM.
    fn calls<'q>(&mut self, f: &FunctionItem<'q>) -> Result<Calls<'q>> {
        let written = self.written(f)?;
        let several = written.len() > 1;
        let called = match (&f.table.alias, written.first()) {
            (Some(alias), _) => alias.name.folded(),
            (None, first) => first.map(|w| w.name.clone()).unwrap_or_default(),
        };
        let (mut calls, mut names) = (Vec::new(), Vec::<Arc<str>>::new());
        let mut cx = ClauseContext::new("functions in FROM");
        for w in written {
            let call = self.table_call(&w, &mut cx, f.table)?;
            match (call.sig.columns.is_empty(), several) {
                (false, _) => names.extend(call.sig.columns.iter().cloned()),
                (true, false) => names.push(Arc::from(called.as_str())),
                (true, true) => names.push(call.sig.name.clone()),
            }
            calls.push(call);
        }
        if f.ordinality {
            names.push("ordinality".into());
        }
        if let Some(alias) = &f.table.alias {
            names = self.alias_columns(alias, names)?;
        }
        if self.probing() {
            // NULLs replace the columns. Where the columns come from does not matter while a query is only
            // examined.
            let known = |e: &Expr| {
                e.rewrite(&mut |n| if n.as_column().is_some() { Expr::null(n.ty().clone()) } else { n })
            };
            calls = calls.iter().map(|c| c.map_exprs(known)).collect();
        }
        let args = || calls.iter().flat_map(|c| &c.args);
        if args().any(reads_outer) {
            return Err(self.fail_direct());
        }
        let columns: BTreeSet<usize> = args().flat_map(Expr::columns).collect();
        let columns = columns.into_iter().filter(|c| matches!(Slot::of(*c), Slot::Column(_))).collect();
        let called = Arc::from(called);
        let sets = calls.iter().any(|c| c.sig.kind == FuncKind::SetReturning && c.sig.form.is_empty());
        let numbered = f.ordinality || sets && self.frames.last().is_some_and(|f| f.alone);
        Ok(Calls { columns, calls, cx, names, called, numbered })
    }

    /// Returns the calls of an item of FROM, as they are written.
    fn written<'q>(&mut self, f: &FunctionItem<'q>) -> Result<Vec<Written<'q>>> {
        let definition = self.defined(f.definition(), f.table)?;
        match f.functions {
            Functions::Call(call) => self.called(call, definition, f.table).map(apart),
            Functions::Form(form) => {
                let name = form.name.to_ascii_lowercase();
                Ok(vec![Written { schema: None, name, args: Vec::new(), definition, form: Some(form) }])
            }
            Functions::Rows(rows) => {
                let mut all = Vec::new();
                for part in rows {
                    let definition = self.defined(&part.definition, f.table)?;
                    all.extend(apart(self.called(&part.call, definition, f.table)?));
                }
                Ok(all)
            }
        }
    }

    fn called<'q>(
        &mut self,
        call: &'q TableCall,
        definition: Vec<(Arc<str>, Type)>,
        place: &TableRef,
    ) -> Result<Written<'q>> {
        let args = self.plain(&call.args, place)?;
        let (schema, name) = call.name.qualified();
        Ok(Written { schema, name, args, definition, form: None })
    }

    /// Returns the names and types of a column definition list.
    fn defined(&mut self, columns: &[AliasColumn], place: &TableRef) -> Result<Vec<(Arc<str>, Type)>> {
        if let Some(ty) = columns.iter().filter_map(|c| c.ty.as_ref()).find(|ty| self.is_constrained(ty)) {
            return Err(self.stop(place, format!("a column of {}, a domain with constraints", ty.text)));
        }
        let column = |c: &AliasColumn| match &c.ty {
            Some(ty) => Ok((Arc::from(c.name.folded()), self.type_named(ty)?)),
            None => Err(Error::syntax(format!("column \"{}\" is defined without a type", c.name))),
        };
        columns.iter().map(column).collect()
    }

    fn plain<'q>(&mut self, args: &'q [Argument], place: &TableRef) -> Result<Vec<&'q Ast>> {
        let mut plain = Vec::new();
        for arg in args {
            match arg {
                Argument::Value(e) => plain.push(e),
                Argument::Star => {
                    return Err(self.stop(place, "* as the argument of a function in FROM"));
                }
                Argument::Named { .. } | Argument::Variadic(_) => {
                    return Err(self.stop(place, "named arguments of a function in FROM"));
                }
            }
        }
        Ok(plain)
    }

    fn table_call<'q>(
        &mut self,
        w: &Written<'q>,
        cx: &mut ClauseContext<'q>,
        place: &TableRef,
    ) -> Result<SetCall> {
        if let Some(form) = w.form {
            return self.table_form(form, place, cx);
        }
        let args = self.exprs(w.args.iter().copied(), cx)?;
        let builtin = w.schema.as_deref().is_none_or(|s| s == "pg_catalog");
        if builtin && self.unkept(&w.name, place) {
            return Err(Error::internal("lowering stopped at a function that no table can keep"));
        }
        let types: Vec<Type> = args.iter().map(|a| a.ty().clone()).collect();
        let Some(sig) = self.signature(w.schema.as_deref(), &w.name, &types) else {
            self.known_types(&w.name, &types, place)?;
            return Err(self.at(super::signature::unknown(self.catalog, &w.name, &types), place));
        };
        if matches!(sig.kind, FuncKind::Aggregate | FuncKind::Window | FuncKind::Operator) {
            return Err(self.stop(place, format!("the function {} in FROM", w.name)));
        }
        // In FROM, a composite value would have one column for each of its fields.
        if sig.kind != FuncKind::SetReturning && self.catalog.fields(&sig.ret).is_some() {
            return Err(self.stop(place, format!("{} of a composite type in FROM", w.name)));
        }
        self.check_volatility(&sig, place);
        let sig = under_collation(sig, &args);
        let args = self.arguments(&sig, args)?;
        self.set_call(sig, args, &w.definition, place)
    }

    fn set_call(
        &mut self,
        sig: Arc<FuncSig>,
        args: Vec<Expr>,
        definition: &[(Arc<str>, Type)],
        place: &TableRef,
    ) -> Result<SetCall> {
        let open = matches!(&sig.ret, Type::Record(fields) if fields.is_empty());
        if open == definition.is_empty() {
            let m = match open {
                true => "a column definition list is required for functions returning \"record\"",
                false => "a column definition list is only allowed for functions returning \"record\"",
            };
            return Err(self.at(Error::syntax(m), place));
        }
        if !open {
            return Ok(SetCall { sig, args, defined: false });
        }
        let (columns, types): (Vec<Arc<str>>, Vec<Type>) = definition.iter().cloned().unzip();
        let sig = FuncSig { columns, ret: Type::Record(types.into()), ..(*sig).clone() };
        Ok(SetCall { sig: Arc::new(sig), args, defined: true })
    }
}

/// Splits `unnest(a, b)` in FROM into `ROWS FROM (unnest(a), unnest(b))`.
fn apart(w: Written<'_>) -> Vec<Written<'_>> {
    let own = w.schema.as_deref().is_none_or(|s| s == "pg_catalog");
    if w.args.len() < 2 || w.name != "unnest" || !own {
        return vec![w];
    }
    let one = |a| Written {
        schema: w.schema.clone(),
        name: w.name.clone(),
        args: vec![a],
        definition: Vec::new(),
        form: None,
    };
    w.args.iter().copied().map(one).collect()
}
