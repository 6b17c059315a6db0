//! Lowers FROM: the list of its items, which are tables, views, CTEs and subqueries.

use super::expr::ClauseContext;
use super::functions::FunctionItem;
use super::on::DeferredTerm;
use super::outer_column::{Domain, Outer};
use super::relation::{Relation, RowKey, RowOrder};
use super::scope::{Frame, Item, Named, Scope, hint};
use super::slot::shift;
use super::{Lowerer, VIEW_DEPTH};
use crate::catalog::{ColumnDef, Generated, TableDef};
use crate::error::{Error, Result};
use crate::expr::{Expr, SortKey};
use crate::graph::NodeId;
use crate::parse::{Parsed, parse_stored};
use crate::rel::{Distinct, Map, Table, Values};
use crate::syntax::{Alias, Body, Expr as Ast, FromItem, Place, Query, SelectItem, TableKind, TableRef};
use crate::types::Type;
use crate::verdict::{Cause, ReasonKind};
use std::sync::Arc;

/// A lowered part of FROM. Its columns are the columns `offset..offset + width` of the whole FROM.
#[derive(Clone, Debug)]
pub(super) struct Factor {
    pub(super) node: NodeId,
    pub(super) offset: usize,
    pub(super) width: usize,
}

/// The parts of FROM that are lowered so far, and the conditions that no join applies yet. The columns of the
/// parts are concatenated.
#[derive(Clone, Debug, Default)]
pub(super) struct Build {
    pub(super) factors: Vec<Factor>,
    pub(super) conjuncts: Vec<Expr>,
    /// The terms of inner joins that contain subqueries.
    pub(super) later: Vec<DeferredTerm>,
    /// The number of conditions at the end of `conjuncts` that link the last factor to the other factors.
    /// Such a condition equates an outer column at the start of the last factor to the same column of FROM.
    pub(super) links: usize,
    /// The position of the first factor of the operand that is being lowered. The factors before this
    /// position are the other operand of an outer join.
    pub(super) floor: usize,
}

impl Factor {
    pub(super) fn holds(&self, column: usize) -> bool {
        (self.offset..self.offset + self.width).contains(&column)
    }
}

impl Build {
    pub(super) fn width(&self) -> usize {
        self.factors.last().map_or(0, |f| f.offset + f.width)
    }
    pub(super) fn push(&mut self, node: NodeId, width: usize) {
        let offset = self.width();
        self.factors.push(Factor { node, offset, width });
    }
}

/// A relation that FROM names.
pub(super) struct Source {
    pub(super) node: NodeId,
    pub(super) names: Vec<Arc<str>>,
    /// The outer columns, which are the first columns of the relation.
    refs: Vec<Outer>,
    schema: Option<Arc<str>>,
    key: Option<Vec<usize>>,
    /// The schema and name of the relation, if the relation is a table.
    table: Option<(Arc<str>, Arc<str>)>,
    /// Whether the relation is a view. A query may use a whole row of a view as a value. The fields of this
    /// value have the view's own column names, even if the query gives aliases to the columns.
    is_view: bool,
    /// Whether other tables inherit from the relation.
    descendants: bool,
    /// The virtual columns whose expressions the engine cannot read. `names` lacks these columns.
    unread: Vec<Arc<str>>,
    pub(super) order: RowOrder<RowKey>,
}

impl Source {
    /// Makes a source from a relation that has no declared key and whose first columns are those of a domain.
    pub(super) fn derived(relation: Relation, refs: Vec<Outer>) -> Source {
        Source {
            node: relation.node,
            names: relation.names,
            refs,
            schema: None,
            key: None,
            table: None,
            is_view: false,
            descendants: false,
            unread: Vec::new(),
            order: relation.order,
        }
    }
}

impl Lowerer<'_> {
    pub(super) fn list(&mut self, from: &[FromItem], build: &mut Build) -> Result<()> {
        for item in from {
            let scope = self.item_of_from(item, build)?;
            let old = self.take_scope();
            let both = self.side_by_side(old, scope, item)?;
            self.set_scope(both);
        }
        if from.len() > 1 {
            self.set_order(RowOrder::Any);
        }
        Ok(())
    }

    /// Returns the keys by which the rows of FROM are ordered. The construct `what` depends on this order. If
    /// the rows of FROM lack the columns of this order, a reason is noted.
    pub(super) fn order_of_from(&mut self, what: &str, place: &impl Place) -> Vec<SortKey> {
        match self.frames.last().map(|f| f.order.clone()) {
            Some(RowOrder::By(keys)) => return keys,
            Some(RowOrder::Hidden) => self.hidden_order(what, place),
            _ => {}
        }
        Vec::new()
    }

    /// Notes a construct that depends on the order of its rows, if the rows lack the columns of this order.
    pub(super) fn hidden_order(&mut self, what: &str, place: &impl Place) {
        // A subquery that is only examined is lowered again later. The construct is noted then, if it still
        // needs the order.
        if !self.probing() {
            let help =
                "Write ORDER BY where the order matters: inside the aggregate, in OVER, or beside LIMIT.";
            let construct = format!("{what} over rows in the order of a subquery, which they do not show,");
            self.reason(ReasonKind::NotYet, place, construct, help);
        }
    }

    /// Returns the order of FROM for rows that lack the columns of the order's keys. If FROM has an order,
    /// the result is a hidden order.
    pub(super) fn unshown_order(&self) -> RowOrder<SortKey> {
        self.frames.last().map_or(RowOrder::Any, |f| f.order.map(|_| None))
    }

    /// Sets the order of the rows of FROM.
    pub(super) fn set_order(&mut self, order: RowOrder<SortKey>) {
        if let Some(f) = self.frames.last_mut() {
            f.order = order;
        }
    }

    pub(super) fn take_scope(&mut self) -> Scope {
        self.frames.last_mut().map(|f| std::mem::take(&mut f.scope)).unwrap_or_default()
    }

    pub(super) fn set_scope(&mut self, scope: Scope) {
        if let Some(f) = self.frames.last_mut() {
            f.scope = scope;
        }
    }

    /// Combines two scopes. Fails where one alias would denote two tables.
    pub(super) fn side_by_side(&self, left: Scope, right: Scope, place: &impl Place) -> Result<Scope> {
        let twice = right.items.iter().find(|r| {
            left.items.iter().any(|l| l.name == r.name && (l.schema == r.schema || l.schema.is_none()))
        });
        match twice {
            Some(item) => {
                let e =
                    Error::duplicate_alias(format!("table name \"{}\" specified more than once", item.name))
                        .hint("Give one of them an alias.");
                Err(self.at(e, place))
            }
            None => Ok(left.and(right)),
        }
    }

    /// Lowers one item of FROM: a table, a subquery or a parenthesised join. Appends the item, and returns
    /// the scope of its names.
    pub(super) fn table_ref(&mut self, t: &TableRef, build: &mut Build) -> Result<Scope> {
        match &t.kind {
            TableKind::Named { name, only, sampled } => {
                self.check_sample(*sampled, t);
                let (schema, table) = name.qualified();
                let source = self.named_table(schema.as_deref(), &table, name)?;
                if *only && source.descendants {
                    let help = "Read all of them together, or move the children's rows into a table of their own: a change of \
                        a child cannot be told from one of its parent.";
                    let construct = format!("ONLY {table}, from which other tables inherit,");
                    self.reason(ReasonKind::NotYet, name, construct, help);
                }
                self.append(source, &table, t.alias.as_ref(), build)
            }
            TableKind::Query { query, lateral, sampled } => {
                self.check_sample(*sampled, t);
                let source = if *lateral { self.lateral(query, build, t)? } else { self.derived(query)? };
                self.append(source, "", t.alias.as_ref(), build)
            }
            TableKind::Nested(item) => {
                let scope = self.item_of_from(item, build)?;
                let Some(alias) = &t.alias else { return Ok(scope) };
                let names = scope.star.iter().map(|c| c.name.clone()).collect();
                let names = self.alias_columns(alias, names)?;
                let columns =
                    scope.star.into_iter().zip(names).map(|(c, name)| Named { name, expr: c.expr }).collect();
                Ok(Scope::of_item(Item::of(Arc::from(alias.name.folded()), columns)))
            }
            TableKind::Functions { functions, ordinality } => {
                self.functions(&FunctionItem::new(t, functions, *ordinality), build)
            }
        }
    }

    fn check_sample(&mut self, sampled: bool, place: &TableRef) {
        if sampled {
            let help = "Sample by a condition on the rows instead, such as a hash of the key.";
            self.because(ReasonKind::Never, Cause::Volatile, place, "TABLESAMPLE", help);
        }
    }

    /// Finds a CTE, table or view by its name.
    pub(super) fn named_table(
        &mut self,
        schema: Option<&str>,
        name: &str,
        place: &impl Place,
    ) -> Result<Source> {
        if schema.is_none()
            && let Some(cte) = self.ctes.iter().rev().find(|c| c.name == name).cloned()
        {
            let relation = Relation { node: cte.node, names: cte.names, order: cte.order };
            return Ok(Source { unread: cte.unread, ..Source::derived(relation, cte.refs) });
        }
        if let Some(def) = self.catalog.table(schema, name) {
            return self.table(def);
        }
        if let Some(text) = self.catalog.view(schema, name) {
            return self.view(schema, name, &text, place);
        }
        let full = schema.map_or_else(|| name.to_owned(), |s| format!("{s}.{name}"));
        let known = self.catalog.table_names();
        let ctes = self.ctes.iter().map(|c| c.name.as_str());
        let e = Error::unknown_table(format!("relation \"{full}\" does not exist"));
        let e = hint(e, name, known.iter().map(String::as_str).chain(ctes));
        Err(self.at(e, place))
    }

    /// Lowers a table. A projection over the table computes the virtual columns. It also casts each column
    /// that is read under a type other than its stored type.
    fn table(&mut self, def: Arc<TableDef>) -> Result<Source> {
        let node = self.add(Table::new(def.clone()))?;
        let mut source = Source {
            schema: Some(def.schema.clone()),
            key: def.keys.first().cloned(),
            table: Some((def.schema.clone(), def.name.clone())),
            descendants: def.descendants,
            ..Source::derived(Relation::new(node, Vec::new()), Vec::new())
        };
        if def.columns.iter().all(ColumnDef::is_plain) {
            source.names = def.columns.iter().map(|c| c.name.clone()).collect();
            return Ok(source);
        }
        let schema = self.graph.schema(node).clone();
        let stored: Vec<Named> = schema
            .columns()
            .iter()
            .enumerate()
            .map(|(i, c)| Named { name: c.label.clone(), expr: schema.expr(i) })
            .collect();
        let (mut exprs, mut places) = (Vec::new(), Vec::new());
        for c in &def.columns {
            places.push(exprs.len());
            let expr = match stored.iter().find(|n| n.name == c.name) {
                Some(column) => Some(match &c.read_as {
                    Some(ty) => column.expr.clone().cast(ty.clone()),
                    None => column.expr.clone(),
                }),
                None => self.generated(c, &stored)?,
            };
            match expr {
                Some(expr) => {
                    exprs.push(expr);
                    source.names.push(c.name.clone());
                }
                None => source.unread.push(c.name.clone()),
            }
        }
        source.key = source.key.map(|k| k.iter().map(|c| places[*c]).collect());
        source.node = self.project(node, exprs, &source.names, 0)?;
        Ok(source)
    }

    /// Returns the expression of a virtual column, over the stored columns of its table. Returns `None` if
    /// the column is not virtual, or if the engine cannot read the expression.
    fn generated(&mut self, column: &ColumnDef, stored: &[Named]) -> Result<Option<Expr>> {
        let Some(Generated::Virtual(text)) = &column.generated else { return Ok(None) };
        let item = Item::of(column.name.clone(), stored.to_vec());
        let before = self.reasons.len();
        let value = parse_stored(&format!("SELECT ({text})")).and_then(|parsed| {
            self.apart(|l| {
                l.frames.push(Frame { scope: Scope::of_item(item), ..Frame::default() });
                parsed.deep(|| l.single(&parsed))
            })
        });
        let refused = self.reasons.len() > before;
        self.reasons.truncate(before);
        // PostgreSQL assigns the value to the column, and fails if the value is too long. The cast below
        // would truncate such a value, so an expression that needs this cast counts as not readable.
        let cut = matches!(&column.ty, Type::Varchar(Some(_)) | Type::Bpchar(_));
        Ok(match value {
            Ok(value) if !(refused || cut && *value.ty() != column.ty) => Some(value.cast(column.ty.clone())),
            _ => None,
        })
    }

    /// Lowers the only output of a query without FROM, in the current frame.
    fn single(&mut self, parsed: &Parsed) -> Result<Expr> {
        let body = parsed.query().map(|q| &q.body);
        let Some(Body::Select(s)) = body else { return Err(Error::internal("no expression")) };
        let [SelectItem::Value { expr: e, alias: None }] = s.items.as_slice() else {
            return Err(Error::internal("no expression"));
        };
        self.expr(e, &mut ClauseContext::new("a generated column"))
    }

    /// Runs `f` on a text other than that of the current query. `f` does not see the current query, and
    /// errors of `f` do not point into the query's text.
    fn apart<T>(&mut self, f: impl FnOnce(&mut Self) -> T) -> T {
        let frames = std::mem::take(&mut self.frames);
        let ctes = std::mem::take(&mut self.ctes);
        let probes = std::mem::take(&mut self.probes);
        let levels = std::mem::take(&mut self.levels);
        let source = self.source.take();
        let result = f(self);
        self.source = source;
        self.levels = levels;
        self.probes = probes;
        self.ctes = ctes;
        self.frames = frames;
        result
    }

    /// Expands a view. In the view's text, neither the CTEs nor the columns of the reading query are visible.
    /// Positions in the view's text are not positions in the query.
    fn view(&mut self, schema: Option<&str>, name: &str, text: &str, place: &impl Place) -> Result<Source> {
        let full = format!("{}{name}", schema.map(|s| format!("{s}.")).unwrap_or_default());
        if self.views.contains(&full) || self.views.len() >= VIEW_DEPTH {
            let e = Error::cycle(format!("view \"{full}\" reads itself, or views nest too deeply"));
            return Err(self.at(e.detail(format!("Through {}.", self.views.join(", "))), place));
        }
        let relation = match self.expanded.get(&full) {
            Some(relation) => relation.clone(),
            None => self.expand(&full, text, place)?,
        };
        Ok(Source { schema: schema.map(Arc::from), is_view: true, ..Source::derived(relation, Vec::new()) })
    }

    /// Lowers the text of a view. The result is stored for later uses of the view, even if the query that
    /// reads the view is only being examined.
    fn expand(&mut self, full: &str, text: &str, place: &impl Place) -> Result<Relation> {
        let parsed = parse_stored(text)?;
        let Some(query) = parsed.query() else { return Err(Error::internal("a view without a query")) };
        let at = self.span(place);
        self.views.push(full.to_owned());
        let relation = self.apart(|l| parsed.deep(|| l.ordered_query(query, &Domain::none())));
        self.views.pop();
        let relation = relation.map_err(|e| {
            let e = if e.detail_text().is_none() { e.detail(format!("In view \"{full}\".")) } else { e };
            at.map_or(e.clone(), |s| e.at(s))
        })?;
        self.expanded.insert(full.to_owned(), relation.clone());
        Ok(relation)
    }

    /// Lowers a subquery in FROM. The subquery sees the columns of enclosing queries, but not the other items
    /// of the same FROM.
    fn derived(&mut self, query: &Query) -> Result<Source> {
        let hidden = self.take_scope();
        let source = self.derived_in(query);
        self.set_scope(hidden);
        source
    }

    fn derived_in(&mut self, query: &Query) -> Result<Source> {
        let mut domain = Domain::none();
        if !self.probing() && self.frames.len() > 1 {
            let free = self.free(query)?;
            domain = self.outer_domain(free)?;
        }
        let relation = self.ordered_query(query, &domain)?;
        Ok(Source::derived(relation, domain.refs))
    }

    /// Returns the domain of the given outer columns. All these columns must be in this SELECT's own domain.
    fn outer_domain(&mut self, free: Vec<Outer>) -> Result<Domain> {
        if free.is_empty() {
            return Ok(Domain::none());
        }
        if self.frames.last().is_some_and(|f| f.direct) {
            return Err(self.fail_direct());
        }
        let positions = free.iter().map(|o| self.here(o)).collect::<Result<Vec<_>>>()?;
        let Some(node) = self.frames.last().and_then(|f| f.domain) else {
            return Err(Error::internal("an outer column without a domain"));
        };
        let whole = positions.len() == self.graph.schema(node).len();
        if whole && positions.iter().enumerate().all(|(i, e)| e.as_column() == Some(i)) {
            return Ok(Domain { refs: free, node: Some(node) });
        }
        let mapped = self.add(Map::new(node, positions))?;
        let node = self.once(Distinct::by_value(&self.graph, mapped))?;
        Ok(Domain { refs: free, node: Some(node) })
    }

    /// Lowers a LATERAL subquery, over the distinct values of those columns of earlier items that the
    /// subquery uses.
    fn lateral(&mut self, query: &Query, build: &mut Build, place: &impl Place) -> Result<Source> {
        if self.probing() {
            return self.derived_in(query);
        }
        let free = self.free(query)?;
        let here = self.frames.len() - 1;
        if free.iter().all(|o| o.frame != here) {
            return self.derived(query);
        }
        let exprs = free.iter().map(|o| self.here(o)).collect::<Result<Vec<_>>>()?;
        let columns: Vec<usize> = exprs.iter().filter_map(Expr::as_column).collect();
        let Some((node, offset)) = self.holder(&columns, build)? else {
            return Err(self.stop(place, "LATERAL that uses a table outside its join"));
        };
        let local = exprs.iter().map(|e| shift(e, -(offset as isize))).collect();
        let mapped = self.add(Map::new(node, local))?;
        let node = self.domain(mapped, place)?;
        let domain = Domain { refs: free, node: Some(node) };
        let relation = self.ordered_query(query, &domain)?;
        Ok(Source::derived(relation, domain.refs))
    }

    /// Returns the node and the offset of the factor that has all these columns. If several factors have
    /// these columns, the factors are merged into one.
    pub(super) fn holder(&mut self, columns: &[usize], build: &mut Build) -> Result<Option<(NodeId, usize)>> {
        let holds = |f: &Factor| columns.iter().all(|c| f.holds(*c));
        if !build.factors.iter().any(holds) {
            let used = |f: &Factor| columns.iter().any(|c| f.holds(*c));
            let first = build.factors.iter().position(used).unwrap_or(0);
            self.merge(build, first)?;
        }
        Ok(build.factors.iter().find(|f| holds(f)).map(|f| (f.node, f.offset)))
    }

    /// Appends a relation to FROM. The first columns of the relation may be copies of outer columns
    /// (`refs`). A condition then equates each copy with the column that it copies.
    pub(super) fn append(
        &mut self,
        source: Source,
        name: &str,
        alias: Option<&Alias>,
        build: &mut Build,
    ) -> Result<Scope> {
        let Source { node, names, refs, schema, key, table, is_view, unread, order, descendants: _ } = source;
        let fields = is_view.then(|| names.clone());
        if let (Some(a), Some(hidden)) = (alias.filter(|a| !a.columns.is_empty()), unread.first()) {
            return Err(
                self.stop(&a.name, format!("the column \"{hidden}\", which is computed where it is read"))
            );
        }
        let (name, names) = match alias {
            Some(a) => (a.name.folded(), self.alias_columns(a, names)?),
            None => (name.to_owned(), names),
        };
        let types = self.graph.schema(node).clone();
        let offset = build.width();
        build.links = if self.probing() { 0 } else { refs.len() };
        for (i, o) in refs.iter().enumerate() {
            if self.probing() {
                self.outer_column(o.frame, o.column, &o.ty)?;
                continue;
            }
            let link = self.here(o)?;
            build.conjuncts.push(link.same_as(shift(&types.expr(i), offset as isize)));
        }
        build.push(node, types.len());
        let k = refs.len();
        self.set_order(order.map(|key| {
            let expr = shift(&types.expr(k + key.output), offset as isize);
            Some(SortKey { expr, descending: key.descending, nulls_first: key.nulls_first })
        }));
        let never = |(i, _): &(usize, &Arc<str>)| types.column(k + i).is_some_and(|c| !c.nullable);
        let once = |(_, name): &(usize, &Arc<str>)| names.iter().filter(|n| n == name).count() == 1;
        let present = names.iter().enumerate().filter(never).find(once).map(|(_, name)| name.clone());
        let columns = names
            .into_iter()
            .enumerate()
            .map(|(i, name)| Named { name, expr: shift(&types.expr(k + i), offset as isize) })
            .collect();
        let key = key.map(|k| k.iter().map(|c| c + offset).collect());
        let schema = schema.filter(|_| alias.is_none());
        Ok(Scope::of_item(Item {
            schema,
            key,
            present,
            table,
            fields,
            unread,
            ..Item::of(Arc::from(name), columns)
        }))
    }

    /// Joins the whole of FROM into one relation.
    pub(super) fn finish(&mut self, mut build: Build) -> Result<NodeId> {
        if build.factors.is_empty() {
            let unit = self.add(Values::unit())?;
            build.push(unit, 0);
        }
        let (mut node, left) = self.join_all(&build.factors, build.conjuncts)?;
        if !left.is_empty() {
            return Err(Error::internal("a condition reads a column that FROM does not have"));
        }
        for term in &build.later {
            node = self.filter_later(node, term, 0)?;
        }
        Ok(node)
    }

    /// Lowers a condition of WHERE, ON or HAVING, which must be boolean.
    pub(super) fn condition<'q>(&mut self, e: &'q Ast, cx: &mut ClauseContext<'q>) -> Result<Expr> {
        let clause = cx.clause;
        let lowered = self.expr(e, cx)?;
        let ty = lowered.ty().clone();
        if !matches!(ty, crate::types::Type::Bool | crate::types::Type::Unknown) {
            let m = Error::type_mismatch(format!("argument of {clause} must be type boolean, not type {ty}"));
            return Err(self.at(m, e));
        }
        let coerced = self.coerce(lowered, &crate::types::Type::Bool);
        self.located(coerced, e)
    }
}
