//! Window functions: OVER, WINDOW, frames.

use super::Lowerer;
use super::expr::Cx;
use super::scope::{Slot, reads_outer};
use crate::agg::AggCall;
use crate::error::{Error, Result};
use crate::expr::functions::resolve_operator;
use crate::expr::{Expr, SortKey};
use crate::graph::{ColSet, NodeId, Schema};
use crate::parse::ast::{
    Expr as Ast, Function, NamedWindowExpr, OrderByExpr, WindowFrame as FrameAst, WindowFrameBound,
    WindowFrameUnits, WindowSpec, WindowType,
};
use crate::parse::{fold, qualified};
use crate::rel::{Map, Window};
use crate::types::Type;
use crate::verdict::ReasonKind;
use crate::window::{self, Bound, Order, OrderKey, Units, WindowCall, WindowFrame};
use std::collections::BTreeSet;

/// A call over a window, of which the clause that it stands in has a placeholder.
#[derive(Clone)]
pub(super) struct Windowed<'q> {
    place: &'q Ast,
    call: WindowCall,
    partition: Vec<Expr>,
    order: Vec<SortKey>,
}

impl Windowed<'_> {
    /// Every expression over the rows of the clause.
    pub(super) fn exprs(&self) -> impl Iterator<Item = &Expr> {
        self.call.call.exprs().chain(&self.partition).chain(self.order.iter().map(|k| &k.expr))
    }

    /// The same call with its expressions taken from `exprs`, in the order of [`Windowed::exprs`].
    fn with_exprs(self, exprs: &mut impl Iterator<Item = Expr>) -> Self {
        let mut next = |old: &Expr| exprs.next().unwrap_or_else(|| old.clone());
        let call = self.call.map_exprs(&mut next);
        let partition = self.partition.iter().map(&mut next).collect();
        let order = self.order.into_iter().map(|k| SortKey { expr: next(&k.expr), ..k }).collect();
        Windowed { call, partition, order, ..self }
    }
}

/// What stands in the parentheses of OVER, names resolved.
struct Spec<'q> {
    partition: &'q [Ast],
    order: &'q [OrderByExpr],
    frame: Option<&'q FrameAst>,
}

impl<'q> Spec<'q> {
    fn of(spec: &'q WindowSpec) -> Spec<'q> {
        Spec { partition: &spec.partition_by, order: &spec.order_by, frame: spec.window_frame.as_ref() }
    }
}

/// A window that several calls share.
struct Shared {
    partition: Vec<usize>,
    order: Vec<OrderKey>,
    calls: Vec<(usize, WindowCall)>,
}

fn windowing(message: impl Into<String>) -> Error {
    Error::windowing(message)
}

impl Lowerer<'_> {
    /// A call with OVER: a placeholder for its value.
    pub(super) fn window<'q>(
        &mut self,
        f: &'q Function,
        over: &'q WindowType,
        list: Vec<&'q Ast>,
        e: &'q Ast,
        cx: &mut Cx<'q>,
    ) -> Result<Expr> {
        if cx.inside_aggregate {
            let e_ = Error::grouping("aggregate function calls cannot contain window function calls");
            return Err(self.at(e_, e));
        }
        if cx.inside_window {
            return Err(self.at(windowing("window function calls cannot be nested"), e));
        }
        let Some(named) = cx.windows_allowed() else {
            let m = format!("window functions are not allowed in {}", cx.clause);
            return Err(self.at(windowing(m), e));
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

    /// `None` for a call that the engine does not know, which is noted.
    fn window_parts<'q>(
        &mut self,
        f: &'q Function,
        spec: &Spec<'q>,
        list: Vec<&'q Ast>,
        e: &'q Ast,
        cx: &mut Cx<'q>,
    ) -> Result<Option<Windowed<'q>>> {
        let mut partition = Vec::new();
        for key in spec.partition {
            let key = self.expr(key, cx)?;
            let key = if *key.ty() == Type::Unknown { self.coerce(key, &Type::Text)? } else { key };
            if !key.ty().has_equality() {
                return Err(self.at(super::relation::no_equality(key.ty(), "A PARTITION BY key"), e));
            }
            if key.as_literal().is_none() && !partition.contains(&key) {
                partition.push(key);
            }
        }
        let mut order = Vec::new();
        for key in spec.order {
            order.push(self.sort_key(key, cx)?);
        }
        let frame = self.frame(spec.frame, &order, e)?;
        if frame.units == Units::Rows || frame.offsets().next().is_none() {
            // Equal for all rows, so they order nothing.
            order.retain(|k| k.expr.as_literal().is_none());
        }
        let Some(call) = self.window_call(f, list, e, cx)? else { return Ok(None) };
        let call = framed(call, frame, order.is_empty());
        Ok(Some(Windowed { place: e, call, partition, order }))
    }

    /// The function and its arguments.
    fn window_call<'q>(
        &mut self,
        f: &'q Function,
        list: Vec<&'q Ast>,
        e: &'q Ast,
        cx: &mut Cx<'q>,
    ) -> Result<Option<AggCall>> {
        let (schema, name) = qualified(&f.name);
        let builtin = schema.as_deref().is_none_or(|s| s == "pg_catalog");
        if f.null_treatment.is_some() {
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
            let e_ = Error::unsupported("FILTER is not implemented for non-aggregate window functions");
            return Err(self.at(e_, e));
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
            return Err(self.at(super::call::unknown(&name, &types), &f.name));
        };
        let args = self.arguments(&sig, args)?;
        Ok(Some(AggCall::new(sig, args)))
    }

    /// The window that OVER names or describes.
    fn spec<'q>(
        &self,
        over: &'q WindowType,
        named: &'q [crate::parse::ast::NamedWindowDefinition],
        place: &Ast,
    ) -> Result<Spec<'q>> {
        let find = |name: &crate::parse::ast::Ident| {
            let found = named.iter().find(|d| fold(&d.0) == fold(name));
            found.ok_or_else(|| {
                let m = format!("window \"{}\" does not exist", fold(name));
                self.at(Error::unknown_object(m), place)
            })
        };
        let mut spec = match over {
            WindowType::WindowSpec(spec) => spec,
            WindowType::NamedWindow(name) => match &find(name)?.1 {
                NamedWindowExpr::WindowSpec(spec) => spec,
                NamedWindowExpr::NamedWindow(_) => {
                    return Err(self.at(Error::syntax("a window is a name and no description"), place));
                }
            },
        };
        let mut found = Spec::of(spec);
        // Definitions refer to earlier ones, so each name is met once.
        for _ in 0..=named.len() {
            let Some(base) = &spec.window_name else { return Ok(found) };
            let NamedWindowExpr::WindowSpec(next) = &find(base)?.1 else { return Ok(found) };
            if next.window_frame.is_some() {
                let m = format!("cannot copy window \"{}\" because it has a frame clause", fold(base));
                return Err(self.at(windowing(m), place));
            }
            if !spec.partition_by.is_empty() || (!found.order.is_empty() && !next.order_by.is_empty()) {
                let m = format!("cannot override a clause of window \"{}\"", fold(base));
                return Err(self.at(windowing(m), place));
            }
            found.partition = &next.partition_by;
            if found.order.is_empty() {
                found.order = &next.order_by;
            }
            spec = next;
        }
        Err(self.at(windowing("windows are defined by each other"), place))
    }

    fn frame(&mut self, frame: Option<&FrameAst>, order: &[SortKey], place: &Ast) -> Result<WindowFrame> {
        let Some(frame) = frame else { return Ok(WindowFrame::default()) };
        let units = match frame.units {
            WindowFrameUnits::Rows => Units::Rows,
            WindowFrameUnits::Range => Units::Range,
            WindowFrameUnits::Groups => Units::Groups,
        };
        if units == Units::Groups && order.is_empty() {
            return Err(self.at(windowing("GROUPS mode requires an ORDER BY clause"), place));
        }
        let start = match &frame.start_bound {
            WindowFrameBound::Following(None) => {
                return Err(self.at(windowing("frame start cannot be UNBOUNDED FOLLOWING"), place));
            }
            WindowFrameBound::Preceding(None) => Bound::Unbounded,
            bound => self.frame_bound(bound, units, order, place)?,
        };
        let end = match &frame.end_bound {
            Some(WindowFrameBound::Preceding(None)) => {
                return Err(self.at(windowing("frame end cannot be UNBOUNDED PRECEDING"), place));
            }
            Some(WindowFrameBound::Following(None)) => Bound::Unbounded,
            Some(bound) => self.frame_bound(bound, units, order, place)?,
            None => Bound::CurrentRow,
        };
        let backwards = match (&start, &end) {
            (Bound::CurrentRow, Bound::Preceding(_)) => {
                Some("frame starting from current row cannot have preceding rows")
            }
            (Bound::Following(_), Bound::Preceding(_) | Bound::CurrentRow) => {
                Some("frame starting from following row cannot end before it")
            }
            _ => None,
        };
        match backwards {
            Some(message) => Err(self.at(windowing(message), place)),
            None => Ok(WindowFrame { units, start, end }),
        }
    }

    fn frame_bound(
        &mut self,
        bound: &WindowFrameBound,
        units: Units,
        order: &[SortKey],
        place: &Ast,
    ) -> Result<Bound> {
        let (offset, preceding) = match bound {
            WindowFrameBound::Preceding(Some(e)) => (e, true),
            WindowFrameBound::Following(Some(e)) => (e, false),
            _ => return Ok(Bound::CurrentRow),
        };
        let mut cx = Cx::new("a window frame");
        let offset = self.expr(offset, &mut cx)?;
        if !cx.subqueries.is_empty() || !offset.is_constant() {
            return Err(self.stop(place, "a frame offset that is no constant"));
        }
        let offset = match (units, order) {
            (Units::Rows | Units::Groups, _) => {
                self.coerce_implicitly(offset, &Type::Int8, "a frame offset")?
            }
            (Units::Range, [key]) => {
                let ty = key.expr.ty();
                let time = matches!(ty, Type::Date | Type::Timestamp | Type::Timestamptz | Type::Time);
                let offset = match (*offset.ty() == Type::Unknown, time) {
                    (true, true) => self.coerce(offset, &Type::Interval)?,
                    (true, false) => self.coerce(offset, ty)?,
                    _ => offset,
                };
                if ["+", "-"]
                    .iter()
                    .any(|op| resolve_operator(op, &[ty.clone(), offset.ty().clone()]).is_none())
                {
                    return Err(self.stop(place, format!("a frame by RANGE over type {ty}")));
                }
                offset
            }
            _ => {
                let m = "RANGE with offset PRECEDING/FOLLOWING requires exactly one ORDER BY column";
                return Err(self.at(windowing(m), place));
            }
        };
        Ok(if preceding { Bound::Preceding(offset) } else { Bound::Following(offset) })
    }

    /// Computes the windows over `node`. `exprs` are the select list, with placeholders, and behind it the expressions of the
    /// windows in their order; the first `domain` columns tell outer rows apart, and so partitions too.
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

    /// The order keys, and behind them what tells rows apart where the call sees an order that ORDER BY leaves open: a key of
    /// the rows, else every column that the query reads.
    fn settled_order(
        &mut self,
        node: NodeId,
        w: &Windowed<'_>,
        partition: &[usize],
        order: Vec<OrderKey>,
        used: &BTreeSet<usize>,
        table: &mut Columns,
    ) -> Vec<OrderKey> {
        let sees = w.call.order();
        let given: ColSet = partition.iter().copied().chain(order.iter().map(|k| k.column)).collect();
        let given: ColSet = given.iter().filter(|c| *c < table.schema.len()).collect();
        let exact = |c: usize| table.schema.column(c).is_some_and(|c| c.ty.is_exact());
        if sees == Order::Peers || self.graph.props(node).is_key(&given) {
            return order;
        }
        if sees == Order::Both {
            // Peers that agree in all that the call reads are one as good as the other.
            let read: BTreeSet<usize> = w.call.exprs().flat_map(Expr::columns).collect();
            if read.iter().all(|c| given.contains(*c) && exact(*c)) {
                return order;
            }
            let name = &w.call.call.sig.name;
            let construct =
                format!("{name}() over a frame that ends among rows which ORDER BY leaves in any order");
            let help =
                "Add columns to ORDER BY that tell the rows apart, or count ROWS instead of RANGE or GROUPS.";
            self.reason(ReasonKind::NotYet, w.place, construct, help);
            return order;
        }
        self.telling_apart(node, partition, order, used, table)
    }

    /// The order keys, and behind them what tells rows apart: a key of the rows, else the columns `used`.
    pub(super) fn telling_apart(
        &self,
        node: NodeId,
        partition: &[usize],
        order: Vec<OrderKey>,
        used: &BTreeSet<usize>,
        table: &mut Columns,
    ) -> Vec<OrderKey> {
        let given: ColSet = partition.iter().copied().chain(order.iter().map(|k| k.column)).collect();
        let given: ColSet = given.iter().filter(|c| *c < table.schema.len()).collect();
        let mut order = order;
        let mut add = |column: usize| {
            if !order.iter().any(|k| k.column == column) {
                order.push(OrderKey::settling(column));
            }
        };
        let props = self.graph.props(node);
        if props.is_key(&given) {
            return order;
        }
        let sortable = |k: &&ColSet| k.iter().all(|c| table.schema.columns()[c].ty.is_ordered());
        if let Some(key) = props.keys.iter().filter(sortable).min_by_key(|k| (k.len(), (*k).clone())) {
            key.iter().filter(|c| !given.contains(*c)).for_each(&mut add);
            return order;
        }
        for c in used {
            let column = table.schema.expr(*c);
            if !column.ty().is_ordered() {
                add(table.place(&column.cast(Type::Text)));
                continue;
            }
            if !partition.contains(c) {
                add(*c);
            }
            if let Some(image) = column.image() {
                add(table.place(&image));
            }
        }
        order
    }
}

/// The columns of a relation, and what is computed beside them.
pub(super) struct Columns {
    schema: Schema,
    all: Vec<Expr>,
}

impl Columns {
    pub(super) fn of(schema: Schema) -> Columns {
        Columns { all: schema.identity(), schema }
    }
    pub(super) fn len(&self) -> usize {
        self.schema.len()
    }
    pub(super) fn column_type(&self, column: usize) -> &Type {
        self.schema.column(column).map_or(&Type::Unknown, |c| &c.ty)
    }
    /// All columns, where some are computed.
    pub(super) fn computed(self) -> Option<Vec<Expr>> {
        (self.all.len() > self.schema.len()).then_some(self.all)
    }

    /// The column that holds the value of `e`.
    fn place(&mut self, e: &Expr) -> usize {
        if let Some(c) = e.as_column() {
            return c;
        }
        self.all.iter().position(|known| known == e).unwrap_or_else(|| {
            self.all.push(e.clone());
            self.all.len() - 1
        })
    }
}

/// The call with its frame, written in one way: what no order tells apart is all of the partition, and functions that look
/// at the partition have no frame.
fn framed(call: AggCall, frame: WindowFrame, unordered: bool) -> WindowCall {
    let value = matches!(&*call.sig.name, "first_value" | "last_value" | "nth_value");
    let framed = WindowCall { call, frame: WindowFrame::default() };
    if framed.is_window_function() && !value {
        return framed;
    }
    let mut frame = frame;
    if unordered && frame.units != Units::Rows {
        frame.units = Units::Range;
        for bound in [&mut frame.start, &mut frame.end] {
            if *bound == Bound::CurrentRow {
                *bound = Bound::Unbounded;
            }
        }
    }
    WindowCall { frame, ..framed }
}
