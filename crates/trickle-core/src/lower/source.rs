//! Lowers the relations that FROM names: CTEs, tables and views.

use super::clause::ClauseContext;
use super::outer_column::{Domain, Outer};
use super::relation::{Relation, RowKey, RowOrder};
use super::scope::{Frame, Item, Named, Scope, hint};
use super::{Lowerer, VIEW_DEPTH};
use crate::catalog::{ColumnDef, Generated, TableDef};
use crate::error::{Error, Result};
use crate::expr::Expr;
use crate::graph::NodeId;
use crate::parse::{Parsed, parse_stored};
use crate::rel::Table;
use crate::syntax::{Body, Place, SelectItem};
use crate::types::Type;
use std::sync::Arc;

/// A relation that FROM names.
pub(super) struct Source {
    pub(super) node: NodeId,
    pub(super) names: Vec<Arc<str>>,
    /// The outer columns, which are the first columns of the relation.
    pub(super) refs: Vec<Outer>,
    pub(super) schema: Option<Arc<str>>,
    pub(super) key: Option<Vec<usize>>,
    /// The schema and name of the relation, if the relation is a table or view.
    pub(super) table: Option<(Arc<str>, Arc<str>)>,
    /// Whether the relation is a view. A query may use a whole row of a view as a value. The fields of this
    /// value have the view's own column names, even if the query gives aliases to the columns.
    pub(super) is_view: bool,
    /// Whether other tables inherit from the relation.
    pub(super) descendants: bool,
    /// The virtual columns whose expressions the engine cannot read. `names` lacks these columns.
    pub(super) unread: Vec<Arc<str>>,
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
        let table = schema.map(|s| (Arc::from(s), Arc::from(name)));
        Ok(Source {
            schema: schema.map(Arc::from),
            is_view: true,
            table,
            ..Source::derived(relation, Vec::new())
        })
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
}
