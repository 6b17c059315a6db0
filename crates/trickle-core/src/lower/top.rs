//! Lowers ORDER BY with LIMIT, OFFSET or FETCH, and DISTINCT ON.

use super::Lowerer;
use super::clause::ClauseContext;
use super::order::Columns;
use super::outer_column::Domain;
use super::relation::{Open, Relation, RowKey, RowOrder};
use super::select::{MAX_OUTPUTS, Output};
use crate::catalog::SYSTEM_COLUMNS;
use crate::error::{Error, Result};
use crate::expr::SortKey;
use crate::expr::evaluate;
use crate::expr::functions::returns_set;
use crate::rel::{Map, Slice, Top};
use crate::syntax::{
    Body, Distinct, Expr as Ast, Ident, Literal, Node, OrderItem, Query, Select, SelectItem, Sort, calls,
};
use crate::types::Datum;
use crate::window::OrderKey;
use std::sync::Arc;

/// A key of ORDER BY, or of the order of FROM.
struct Key<'q> {
    row: RowKey,
    place: Option<&'q Ast>,
}

/// Whether ORDER BY has keys, and all of them are columns or numbers of outputs.
pub(super) fn by_columns(order: &[OrderItem]) -> bool {
    let column = |key: &OrderItem| {
        let named = matches!(key.expr.bare().node, Node::Name(_) | Node::Literal(Literal::Number(_)));
        named && key.sort != Sort::Using
    };
    !order.is_empty() && order.len() <= MAX_OUTPUTS && order.iter().all(column)
}

fn unlisted() -> Error {
    Error::invalid_reference("for SELECT DISTINCT, ORDER BY expressions must appear in select list")
}

impl Lowerer<'_> {
    /// Returns the slice of rows that LIMIT, OFFSET and FETCH select, or `None` for all rows.
    pub(super) fn slice(&mut self, q: &Query) -> Result<Option<Slice>> {
        let mut slice = Slice { offset: 0, limit: None, ties: false };
        if let Some(limit) = &q.limit {
            slice.limit = self.count(limit.count.as_ref(), "LIMIT")?;
            slice.offset = self.count(limit.offset.as_ref(), "OFFSET")?.unwrap_or(0);
        }
        if let Some(fetch) = &q.fetch {
            slice.limit = match &fetch.quantity {
                Some(e) => self.count(Some(e), "FETCH FIRST")?,
                None => Some(1),
            };
            if fetch.with_ties && q.order_by.is_empty() {
                let m = "WITH TIES cannot be specified without ORDER BY clause";
                return Err(self.at(Error::syntax(m), q));
            }
            slice.ties = fetch.with_ties;
        }
        Ok((slice.limit.is_some() || slice.offset > 0).then_some(slice))
    }

    /// Whether a key of ORDER BY may call a function that returns a set of rows.
    pub(super) fn sorts_by_sets(&self, order: &[OrderItem]) -> bool {
        let set = |(schema, name): (Option<String>, String)| {
            let builtin = schema.as_ref().is_none_or(|s| s == "pg_catalog");
            builtin && returns_set(&name) || self.catalog.returns_set(schema.as_deref(), &name)
        };
        order.iter().flat_map(|key| calls(&key.expr)).any(set)
    }

    /// Reads a constant number of rows. Returns `None` for NULL and ALL.
    fn count(&mut self, e: Option<&Ast>, clause: &'static str) -> Result<Option<u64>> {
        let Some(e) = e else { return Ok(None) };
        let mut cx = ClauseContext::new(clause);
        let count = self.expr(e, &mut cx)?;
        if !cx.subqueries.is_empty() || !count.is_constant() {
            self.not_yet(e, format!("{clause} with a number that is no constant"));
            return Ok(None);
        }
        let count = self.coerce(count, &crate::types::Type::Int8)?;
        match evaluate::expr(&count, &[])? {
            Datum::Int(n) => match u64::try_from(n) {
                Ok(n) => Ok(Some(n)),
                Err(_) => Err(self.at(Error::data("2201W", format!("{clause} must not be negative")), e)),
            },
            _ => Ok(None),
        }
    }

    /// Lowers `q` and selects the rows of `slice`, its LIMIT and OFFSET.
    pub(super) fn sliced(&mut self, q: &Query, slice: Slice, domain: &Domain) -> Result<Open> {
        let order = q.order_by.as_slice();
        if let Body::Select(s) = &q.body {
            return self.sorted_select(s, order, Some(slice), domain);
        }
        let mut open = self.body(&q.body, domain)?;
        let (mut keys, visible) = (Vec::new(), open.exprs.len());
        if order.is_empty() {
            match &open.order {
                RowOrder::By(own) => keys.extend(own.iter().map(|row| Key { row: *row, place: None })),
                RowOrder::Hidden => self.hidden_order("LIMIT", q),
                RowOrder::Any => {}
            }
            open.exprs.append(&mut open.hidden);
            open.names.resize(open.exprs.len(), "".into());
        }
        let relation = self.close(open)?;
        for key in order {
            let Some(output) = self.named_output(&key.expr, &relation.names)? else {
                return Err(self.stop(&key.expr, "ORDER BY an expression over a set operation"));
            };
            keys.push(self.key(key, output)?);
        }
        self.cut(relation, visible, &keys, Some(slice), None, domain)
    }

    /// Lowers a SELECT with LIMIT or DISTINCT ON. The order of its rows decides which rows it returns.
    pub(super) fn sorted_select(
        &mut self,
        s: &Select,
        order: &[OrderItem],
        slice: Option<Slice>,
        domain: &Domain,
    ) -> Result<Open> {
        self.in_frame(domain, |this| this.sorted_in_frame(s, order, slice, domain))
    }

    fn sorted_in_frame(
        &mut self,
        s: &Select,
        order: &[OrderItem],
        slice: Option<Slice>,
        domain: &Domain,
    ) -> Result<Open> {
        let (node, mut outputs, mut names) = self.before_outputs(s, domain)?;
        let visible = outputs.len();
        let mut keys = Vec::new();
        for key in order {
            let output = self.sort_output(&key.expr, visible, &mut outputs, &mut names)?;
            keys.push(self.key(key, output)?);
        }
        let mut distinct_on = None;
        if let Some(Distinct::On(on)) = &s.distinct {
            let mut positions = Vec::new();
            for e in on {
                positions.push(self.sort_output(e, visible, &mut outputs, &mut names)?);
            }
            let leads = keys.iter().take_while(|k| positions.contains(&k.row.output)).count();
            let leading = |p: &usize| keys[..leads].iter().any(|k| k.row.output == *p);
            if leads < keys.len() && !positions.iter().all(leading) {
                let e = Error::invalid_reference(
                    "SELECT DISTINCT ON expressions must match initial ORDER BY expressions",
                );
                return Err(keys[leads].place.map_or(e.clone(), |place| self.at(e, place)));
            }
            distinct_on = Some(positions);
        } else if outputs.len() > visible && matches!(s.distinct, Some(Distinct::Rows)) {
            return Err(self.at(unlisted(), s));
        }
        let mut open = self.selected(s, node, outputs, names, domain)?;
        if keys.is_empty() && !open.distinct {
            // PostgreSQL sorts by the expressions of DISTINCT ON.
            let first = |output| RowKey { output, descending: false, nulls_first: false };
            keys =
                distinct_on.iter().flatten().map(|output| Key { row: first(*output), place: None }).collect();
            let what = if distinct_on.is_some() { "DISTINCT ON" } else { "LIMIT" };
            for key in self.order_of_from(what, s) {
                let known = open.exprs.iter().position(|e| *e == key.expr);
                let output = known.unwrap_or_else(|| {
                    open.exprs.push(key.expr);
                    open.names.push("".into());
                    open.exprs.len() - 1
                });
                let (descending, nulls_first) = (key.descending, key.nulls_first);
                keys.push(Key { row: RowKey { output, descending, nulls_first }, place: None });
            }
        }
        let relation = self.close(open)?;
        self.cut(relation, visible, &keys, slice, distinct_on, domain)
    }

    /// Lowers a SELECT with an ORDER BY whose keys need not be among the outputs.
    pub(super) fn ordered_select(
        &mut self,
        s: &Select,
        order: &[OrderItem],
        domain: &Domain,
    ) -> Result<Open> {
        self.in_frame(domain, |this| this.ordered_in_frame(s, order, domain))
    }

    fn ordered_in_frame(&mut self, s: &Select, order: &[OrderItem], domain: &Domain) -> Result<Open> {
        let (node, mut outputs, mut names) = self.before_outputs(s, domain)?;
        let visible = outputs.len();
        let mut rows: Vec<RowKey> = Vec::new();
        let mut known = true;
        for key in order {
            if self.is_unread(&key.expr) {
                known = false;
                continue;
            }
            let output = self.sort_output(&key.expr, visible, &mut outputs, &mut names)?;
            let (descending, nulls_first) = self.direction(key)?;
            rows.push(RowKey { output, descending, nulls_first });
        }
        let mut open = self.selected(s, node, outputs, names, domain)?;
        let more = open.exprs.split_off(visible);
        open.names.truncate(visible);
        let expr = |output: usize| open.exprs.iter().chain(&more).nth(output).cloned();
        let key = |row: &RowKey| {
            let (descending, nulls_first) = (row.descending, row.nulls_first);
            Some(SortKey { expr: expr(row.output)?, descending, nulls_first })
        };
        let keys: Vec<SortKey> = rows.iter().filter_map(key).collect();
        known &= keys.iter().all(|key| key.expr.ty().is_ordered());
        let open = open.ordered(&RowOrder::By(keys));
        if open.distinct && !open.hidden.is_empty() {
            return Err(self.at(unlisted(), s));
        }
        // Set-returning functions of the select list run over the sorted rows.
        known &= open.hidden.is_empty() || !self.frames.last().is_some_and(|f| f.expanded);
        Ok(if known { open } else { Open { order: RowOrder::Hidden, ..open } })
    }

    /// Whether an expression is a column of FROM that the engine cannot read.
    fn is_unread(&self, e: &Ast) -> bool {
        let Node::Name(path) = &e.bare().node else { return false };
        let name = path.last().map(Ident::folded).unwrap_or_default();
        let items = self.frames.last().map(|f| f.scope.items.as_slice()).unwrap_or_default();
        SYSTEM_COLUMNS.contains(&name.as_str()) || items.iter().any(|item| item.hides(&name))
    }

    /// Sets the order of a query's rows: that of the query's ORDER BY, or else that of the query's body.
    pub(super) fn in_order_of(&mut self, q: &Query, open: Open) -> Result<Open> {
        if q.order_by.is_empty() {
            return Ok(open);
        }
        let order = self.order_by_outputs(q, &q.order_by, &open)?;
        Ok(Open { order, hidden: Vec::new(), ..open })
    }

    fn order_by_outputs(&mut self, q: &Query, keys: &[OrderItem], open: &Open) -> Result<RowOrder<RowKey>> {
        if keys.len() > MAX_OUTPUTS {
            return Ok(RowOrder::Hidden);
        }
        let listed = match &q.body {
            Body::Select(s) => s.items.as_slice(),
            Body::Query(_) | Body::SetOperation(_) | Body::Values(_) | Body::Write(_) => &[],
        };
        let same = |item: &SelectItem, e: &Ast| match item {
            SelectItem::Value { expr: own, .. } => super::grouping::written_alike(own, e),
            SelectItem::Star(_) | SelectItem::TableStar(..) | SelectItem::FieldsStar(..) => false,
        };
        let mut rows: Vec<RowKey> = Vec::new();
        for key in keys {
            let constant = &key.expr.bare().node;
            if matches!(constant, Node::Literal(l) if !matches!(l, Literal::Number(_))) {
                continue;
            }
            let named = self.named_output(&key.expr, &open.names)?;
            // A `*` stands for several outputs. After it, an entry of the select list and the entry's output
            // have different positions.
            let entry = || listed.iter().position(|item| same(item, &key.expr));
            let entry = || entry().filter(|_| listed.len() == open.exprs.len());
            let usual = key.sort != Sort::Using;
            let sortable =
                |output: &usize| usual && open.exprs.get(*output).is_some_and(|e| e.ty().is_ordered());
            let Some(output) = named.or_else(entry).filter(sortable) else { return Ok(RowOrder::Hidden) };
            let (descending, nulls_first) = self.direction(key)?;
            if !rows.iter().any(|row| row.output == output) {
                rows.push(RowKey { output, descending, nulls_first });
            }
        }
        Ok(RowOrder::by(rows))
    }

    fn key<'q>(&mut self, key: &'q OrderItem, output: usize) -> Result<Key<'q>> {
        let (descending, nulls_first) = self.direction(key)?;
        Ok(Key { row: RowKey { output, descending, nulls_first }, place: Some(&key.expr) })
    }

    /// Returns the output that a sort expression denotes: by position, by name, or by the same expression.
    /// Any other sort expression is added as a further output.
    fn sort_output<'q>(
        &mut self,
        e: &'q Ast,
        visible: usize,
        outputs: &mut Vec<Output<'q>>,
        names: &mut Vec<Arc<str>>,
    ) -> Result<usize> {
        if let Some(i) = self.named_output(e, &names[..visible])? {
            return Ok(i);
        }
        let same =
            |o: &Output<'_>| matches!(o, Output::Text(text) if super::grouping::written_alike(text, e));
        if let Some(i) = outputs.iter().position(same) {
            return Ok(i);
        }
        outputs.push(Output::Text(e));
        names.push("".into());
        Ok(outputs.len() - 1)
    }

    /// Returns the output that an integer or an unqualified name means.
    fn named_output(&self, e: &Ast, names: &[Arc<str>]) -> Result<Option<usize>> {
        match &e.bare().node {
            Node::Literal(Literal::Number(n)) => {
                let found = n.parse::<usize>().ok().filter(|n| *n >= 1 && *n <= names.len());
                found.map(|n| Some(n - 1)).ok_or_else(|| {
                    let m = format!("ORDER BY position {n} is not in select list");
                    self.at(Error::invalid_reference(m), e)
                })
            }
            Node::Name(parts) => {
                let [name] = parts.as_slice() else { return Ok(None) };
                let folded = name.folded();
                Ok(names.iter().position(|n| **n == *folded))
            }
            _ => Ok(None),
        }
    }

    /// Applies DISTINCT ON and then the slice to a relation. The result has the columns of the domain, and
    /// the first `visible` columns after these.
    fn cut(
        &mut self,
        relation: Relation,
        visible: usize,
        keys: &[Key<'_>],
        slice: Option<Slice>,
        distinct_on: Option<Vec<usize>>,
        domain: &Domain,
    ) -> Result<Open> {
        let width = domain.width();
        let mut table = Columns::of(self.graph.schema(relation.node).clone());
        let mut order = Vec::new();
        for key in keys {
            let column = width + key.row.output;
            if let Some(place) = key.place {
                self.sortable(table.column_type(column), place)?;
            }
            let (descending, nulls_first) = (key.row.descending, key.row.nulls_first);
            order.push(OrderKey { column, descending, nulls_first, settles: false });
        }
        let all = (width..table.len()).collect();
        let mut partition: Vec<usize> = (0..width).collect();
        partition.extend(distinct_on.iter().flatten().map(|c| width + c));
        let first = match distinct_on {
            Some(_) => {
                let within = order.iter().filter(|k| !partition.contains(&k.column)).copied().collect();
                Some(self.telling_apart(relation.node, &partition, within, &all, &mut table))
            }
            None => None,
        };
        let outer: Vec<usize> = (0..width).collect();
        let last = self.telling_apart(relation.node, &outer, order, &all, &mut table);
        let mut node = relation.node;
        if let Some(computed) = table.computed() {
            node = self.add(Map::new(node, computed))?;
        }
        if let Some(order) = first {
            let one = Slice { offset: 0, limit: Some(1), ties: false };
            node = self.add(Top::new(node, partition, order, one))?;
        }
        if let Some(slice) = slice {
            node = self.add(Top::new(node, outer, last, slice))?;
        }
        let names = relation.names.into_iter().take(visible).collect();
        let schema = self.graph.schema(node).clone();
        let sorted = |k: &Key<'_>| SortKey {
            expr: schema.expr(width + k.row.output),
            descending: k.row.descending,
            nulls_first: k.row.nulls_first,
        };
        let order = RowOrder::by(keys.iter().map(sorted).collect());
        let exprs = (width..width + visible).map(|i| schema.expr(i)).collect();
        let domain = (0..width).map(|i| schema.expr(i)).collect();
        let open =
            Open { node, domain, exprs, names, distinct: false, order: RowOrder::Any, hidden: Vec::new() };
        Ok(open.ordered(&order))
    }
}
