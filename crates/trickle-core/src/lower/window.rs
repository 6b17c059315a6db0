//! Lowers window functions: OVER, WINDOW, frames.

use super::Lowerer;
use super::clause::ClauseContext;
use super::frame::{Spec, framed};
use super::order::Columns;
use super::relation::RowOrder;
use super::slot::{Slot, reads_outer};
use crate::agg::AggCall;
use crate::error::{Error, Result};
use crate::expr::{Expr, SortKey};
use crate::graph::NodeId;
use crate::rel::{Map, Window};
use crate::syntax::{Call, Expr as Ast, Over};
use crate::types::Type;
use crate::window::{self, OrderKey, Units, WindowCall};
use std::collections::BTreeSet;

/// A window function call. The lowered clause has a placeholder for the value of the call.
#[derive(Clone)]
pub(super) struct Windowed<'q> {
    pub(super) place: &'q Ast,
    pub(super) call: WindowCall,
    partition: Vec<Expr>,
    order: Vec<SortKey>,
}

impl Windowed<'_> {
    /// Whether PostgreSQL may sort the rows for this call.
    fn sorts(&self) -> bool {
        !self.partition.is_empty() || !self.order.is_empty()
    }
    /// Returns every expression of the call: its arguments, partition keys and order keys.
    pub(super) fn exprs(&self) -> impl Iterator<Item = &Expr> {
        self.call.call.exprs().chain(&self.partition).chain(self.order.iter().map(|k| &k.expr))
    }

    /// Returns the same call with its expressions taken from `exprs`, in the order of [`Windowed::exprs`].
    fn with_exprs(self, exprs: &mut impl Iterator<Item = Expr>) -> Self {
        let mut next = |old: &Expr| exprs.next().unwrap_or_else(|| old.clone());
        let call = self.call.map_exprs(&mut next);
        let partition = self.partition.iter().map(&mut next).collect();
        let order = self.order.into_iter().map(|k| SortKey { expr: next(&k.expr), ..k }).collect();
        Windowed { call, partition, order, ..self }
    }
}

/// A window that several calls share.
struct Shared {
    partition: Vec<usize>,
    order: Vec<OrderKey>,
    calls: Vec<(usize, WindowCall)>,
}

impl Lowerer<'_> {
    /// Lowers a call with OVER to a placeholder for its value.
    pub(super) fn window<'q>(
        &mut self,
        f: &'q Call,
        over: &'q Over,
        list: Vec<&'q Ast>,
        e: &'q Ast,
        cx: &mut ClauseContext<'q>,
    ) -> Result<Expr> {
        if cx.inside_aggregate {
            let m = "aggregate function calls cannot contain window function calls";
            return Err(self.at(Error::grouping(m), e));
        }
        if cx.inside_window {
            return Err(self.at(Error::windowing("window function calls cannot be nested"), e));
        }
        let Some(named) = cx.windows_allowed() else {
            let m = format!("window functions are not allowed in {}", cx.clause);
            return Err(self.at(Error::windowing(m), e));
        };
        let spec = self.spec(over, named, e)?;
        cx.inside_window = true;
        let made = self.window_parts(f, &spec, list, e, cx);
        cx.inside_window = false;
        let Some(made) = made? else { return Ok(Expr::null(Type::Unknown)) };
        if let (true, Some(top)) = (made.exprs().any(reads_outer), self.frames.last_mut()) {
            top.direct_failed = true;
        }
        let ty = made.call.call.sig.ret.clone();
        cx.windows.push(made);
        Ok(Slot::Window(cx.windows.len() - 1).expr(ty))
    }

    /// Lowers the parts of a window function call. If the engine does not know the function, notes a reason
    /// and returns `None`.
    fn window_parts<'q>(
        &mut self,
        f: &'q Call,
        spec: &Spec<'q>,
        list: Vec<&'q Ast>,
        e: &'q Ast,
        cx: &mut ClauseContext<'q>,
    ) -> Result<Option<Windowed<'q>>> {
        let mut partition = Vec::new();
        for key in spec.partition {
            let key = self.expr(key, cx)?;
            let key = if *key.ty() == Type::Unknown { self.coerce(key, &Type::Text)? } else { key };
            if !key.ty().has_equality() {
                return Err(self.without_equality(key.ty(), "A PARTITION BY key", e));
            }
            if key.as_literal().is_none() && !partition.contains(&key) {
                partition.push(key);
            }
        }
        let mut order = Vec::new();
        for key in spec.order {
            order.push(self.sort_key(key, cx)?);
        }
        let frame = self.frame(spec, &order, e)?;
        if frame.units == Units::Rows || frame.offsets().next().is_none() {
            // A constant key has the same value in all rows, so it does not order the rows.
            order.retain(|k| k.expr.as_literal().is_none());
        }
        let Some(call) = self.window_call(f, list, e, cx)? else { return Ok(None) };
        let call = framed(call, frame, order.is_empty());
        Ok(Some(Windowed { place: e, call, partition, order }))
    }

    /// Lowers the function of a window function call, and its arguments.
    fn window_call<'q>(
        &mut self,
        f: &'q Call,
        list: Vec<&'q Ast>,
        e: &'q Ast,
        cx: &mut ClauseContext<'q>,
    ) -> Result<Option<AggCall>> {
        let (schema, name) = f.name.qualified();
        let builtin = schema.as_deref().is_none_or(|s| s == "pg_catalog");
        if f.treats_nulls {
            return Err(self.stop(e, "IGNORE NULLS"));
        }
        let refused =
            |what: &str| Error::unsupported(format!("{what} is not implemented for window functions"));
        if !(builtin && window::FUNCTIONS.contains(&name.as_str())) {
            let call = match self.aggregate_parts(&name, schema.as_deref(), f, list, e, cx)? {
                Ok(call) => call,
                Err(_) => return Ok(None),
            };
            let what = match (&call.order_by.is_empty(), call.distinct) {
                (_, true) => "DISTINCT",
                (false, _) => "aggregate ORDER BY",
                _ => return Ok(Some(call)),
            };
            return Err(self.at(refused(what), e));
        }
        if f.filter.is_some() {
            let m = "FILTER is not implemented for non-aggregate window functions";
            return Err(self.at(Error::unsupported(m), e));
        }
        let mut args = self.exprs(list, cx)?;
        if let ("lag" | "lead", [value, _, default]) = (&*name, args.as_mut_slice()) {
            let (both, _) = self.unified(&name.to_uppercase(), vec![value.clone(), default.clone()])?;
            if let Ok([v, d]) = <[Expr; 2]>::try_from(both) {
                (*value, *default) = (v, d);
            }
        }
        if let Some(first) = args.first_mut().filter(|a| *a.ty() == Type::Unknown && name != "ntile") {
            *first = self.coerce(first.clone(), &Type::Text)?;
        }
        let types: Vec<Type> = args.iter().map(|a| a.ty().clone()).collect();
        let Some(sig) = window::resolve(&name, &types) else {
            return Err(self.at(super::signature::unknown(self.catalog, &name, &types), &f.name));
        };
        let args = self.arguments(&sig, args)?;
        Ok(Some(AggCall::new(sig, args)))
    }

    /// Sets the order in which rows leave the windows. If all windows that need an order need the same order,
    /// PostgreSQL sorted the rows in this order. No clause requires this order. The order only decides which
    /// rows the LIMIT of the same SELECT selects.
    fn sorted_by(&mut self, windows: &[Windowed<'_>]) {
        let mut sorting = windows.iter().filter(|w| w.sorts());
        let Some(first) = sorting.next() else { return };
        let same = |w: &Windowed<'_>| w.partition == first.partition && w.order == first.order;
        let key = |e: &Expr| SortKey { expr: e.clone(), descending: false, nulls_first: false };
        let keys = || first.partition.iter().map(key).chain(first.order.iter().cloned()).collect();
        let keys: Vec<SortKey> = if sorting.all(same) { keys() } else { Vec::new() };
        let order = match keys.iter().all(|k| k.expr.ty().is_ordered()) {
            true => RowOrder::by(keys),
            false => RowOrder::Any,
        };
        if let Some(f) = self.frames.last_mut() {
            f.resorted = true;
            f.order = order;
        }
    }

    /// Computes the windows over `node`. `exprs` has the select list with placeholders, followed by the
    /// expressions of the windows, in the order of the windows. The first `domain` columns tell outer rows
    /// apart, so they are part of the key of every partition.
    pub(super) fn windowed(
        &mut self,
        node: NodeId,
        mut exprs: Vec<Expr>,
        windows: Vec<Windowed<'_>>,
        domain: usize,
    ) -> Result<(NodeId, Vec<Expr>)> {
        let inner: usize = windows.iter().map(|w| w.exprs().count()).sum();
        let mut moved = exprs.split_off(exprs.len().saturating_sub(inner)).into_iter();
        let windows: Vec<_> = windows.into_iter().map(|w| w.with_exprs(&mut moved)).collect();
        let all = exprs.iter().chain(windows.iter().flat_map(Windowed::exprs));
        let mut used: BTreeSet<usize> = BTreeSet::new();
        all.for_each(|e| {
            e.each_column(|c| {
                if matches!(Slot::of(c), Slot::Column(_)) {
                    used.insert(c);
                }
            })
        });
        let mut table = Columns::of(self.graph.schema(node).clone());
        let mut shared: Vec<Shared> = Vec::new();
        if windows.iter().any(Windowed::sorts) && !windows.iter().all(Windowed::sorts) {
            // If the window of a call needs no sort, the call reads the rows in the order in which PostgreSQL
            // sorted them for another window.
            self.set_order(self.unshown_order());
        }
        for (i, w) in windows.iter().enumerate() {
            let mut partition: Vec<usize> = (0..domain).collect();
            for key in &w.partition {
                let place = table.place(key);
                if !partition.contains(&place) {
                    partition.push(place);
                }
            }
            let key = |k: &SortKey, column| OrderKey {
                column,
                descending: k.descending,
                nulls_first: k.nulls_first,
                settles: false,
            };
            let order: Vec<OrderKey> = w.order.iter().map(|k| key(k, table.place(&k.expr))).collect();
            let order = self.settled_order(node, w, &partition, order, &used, &mut table);
            match shared.iter_mut().find(|s| s.partition == partition && s.order == order) {
                Some(s) => s.calls.push((i, w.call.clone())),
                None => shared.push(Shared { partition, order, calls: vec![(i, w.call.clone())] }),
            }
        }
        self.sorted_by(&windows);
        let mut node = match table.computed() {
            Some(all) => self.add(Map::new(node, all))?,
            None => node,
        };
        let mut places = vec![0; windows.len()];
        for s in shared {
            let width = self.graph.schema(node).len();
            let (indices, calls): (Vec<usize>, Vec<WindowCall>) = s.calls.into_iter().unzip();
            indices.iter().enumerate().for_each(|(at, i)| places[*i] = width + at);
            node = self.add(Window::new(node, s.partition, s.order, calls))?;
        }
        let put = |e: &Expr| {
            e.rewrite(&mut |n| match n.as_column().map(Slot::of) {
                Some(Slot::Window(i)) => Expr::column(places[i], n.ty().clone()),
                _ => n,
            })
        };
        Ok((node, exprs.iter().map(put).collect()))
    }
}
