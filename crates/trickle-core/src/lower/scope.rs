//! Resolves names to columns.

use super::Lowerer;
use super::relation::{RowKey, RowOrder};
use crate::catalog::SYSTEM_COLUMNS;
use crate::error::{Error, Result};
use crate::expr::{Expr, ExprKind, FuncSig, SortKey};
use crate::graph::NodeId;
use crate::near::nearest;
use crate::syntax::{Ident, Place};
use crate::types::Type;
use std::sync::Arc;

/// The bit of a column position that stands for an aggregate call. Such a position is a placeholder for a
/// value that is joined later.
const AGGREGATE: usize = 1 << (usize::BITS - 2);
/// The bit of a position that stands for a subquery.
const SUBQUERY: usize = 1 << (usize::BITS - 3);
/// The bit of a position that stands for a column of the enclosing query.
const OUTER: usize = 1 << (usize::BITS - 4);
/// The bit of a position that stands for a window function call.
const WINDOW: usize = 1 << (usize::BITS - 5);
/// The bit of a position that stands for a call of GROUPING.
const GROUPING: usize = 1 << (usize::BITS - 6);
/// The bit of a position that stands for a column of a set-returning call.
const SET: usize = 1 << (usize::BITS - 7);
/// The number of bits, in a position with bit [`SET`], for the number of the column.
const SET_COLUMN: u32 = 12;

/// The meaning of a column position, which may be a placeholder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slot {
    /// A column of the current relation.
    Column(usize),
    /// The n-th aggregate call of the clause.
    Aggregate(usize),
    /// The n-th subquery of the clause.
    Subquery(usize),
    /// A column of the enclosing query's relation.
    Outer(usize),
    /// The n-th window function call of the clause.
    Window(usize),
    /// The n-th GROUPING of the clause.
    Grouping(usize),
    /// A column of the n-th set-returning call of the clause.
    Set(usize, usize),
}

impl Slot {
    pub(super) fn of(position: usize) -> Slot {
        match position {
            p if p & AGGREGATE != 0 => Slot::Aggregate(p & !AGGREGATE),
            p if p & SUBQUERY != 0 => Slot::Subquery(p & !SUBQUERY),
            p if p & OUTER != 0 => Slot::Outer(p & !OUTER),
            p if p & WINDOW != 0 => Slot::Window(p & !WINDOW),
            p if p & GROUPING != 0 => Slot::Grouping(p & !GROUPING),
            p if p & SET != 0 => {
                let at = p & !SET;
                Slot::Set(at >> SET_COLUMN, at & ((1 << SET_COLUMN) - 1))
            }
            p => Slot::Column(p),
        }
    }
    pub(super) fn expr(self, ty: Type) -> Expr {
        Expr::column(
            match self {
                Slot::Column(i) => i,
                Slot::Aggregate(i) => AGGREGATE | i,
                Slot::Subquery(i) => SUBQUERY | i,
                Slot::Outer(i) => OUTER | i,
                Slot::Window(i) => WINDOW | i,
                Slot::Grouping(i) => GROUPING | i,
                Slot::Set(i, column) => SET | i << SET_COLUMN | column,
            },
            ty,
        )
    }
}

/// Whether an expression reads a column of the enclosing query directly.
pub(super) fn reads_outer(e: &Expr) -> bool {
    e.columns().iter().any(|c| matches!(Slot::of(*c), Slot::Outer(_)))
}

/// Moves the real columns by `by`; placeholders stay.
pub(super) fn shift(e: &Expr, by: isize) -> Expr {
    if by == 0 {
        return e.clone();
    }
    e.map_columns(|c| match Slot::of(c) {
        Slot::Column(c) => c.wrapping_add_signed(by),
        _ => c,
    })
}

/// A named value over the columns of a FROM.
#[derive(Clone, Debug)]
pub(super) struct Named {
    pub(super) name: Arc<str>,
    /// A column, or a COALESCE for the merged column of a FULL JOIN.
    pub(super) expr: Expr,
}

/// One item of FROM under its alias.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub(super) name: Arc<str>,
    pub(super) schema: Option<Arc<str>>,
    pub(super) columns: Vec<Named>,
    /// The positions of the primary key's columns, which determine all columns of the item.
    pub(super) key: Option<Vec<usize>>,
    /// The name of a column that is NULL only in rows that an outer join padded.
    pub(super) present: Option<Arc<str>>,
    /// The schema and name of the table whose rows the item has.
    pub(super) table: Option<(Arc<str>, Arc<str>)>,
    /// The column names of an item's row that is used as a value, if they differ from the names in `columns`.
    pub(super) fields: Option<Vec<Arc<str>>>,
    /// The names of virtual columns whose expressions the engine cannot read.
    pub(super) unread: Vec<Arc<str>>,
}

/// The names that are visible in one SELECT.
#[derive(Clone, Debug, Default)]
pub(super) struct Scope {
    /// The columns that `*` expands to. Unqualified names are looked up in these columns.
    pub(super) star: Vec<Named>,
    /// The items in which qualified names are looked up.
    pub(super) items: Vec<Item>,
}

impl Scope {
    pub(super) fn of_item(item: Item) -> Scope {
        Scope { star: item.columns.clone(), items: vec![item] }
    }

    /// Combines both scopes into one that has the names of both.
    pub(super) fn and(mut self, other: Scope) -> Scope {
        self.star.extend(other.star);
        self.items.extend(other.items);
        self
    }
}

impl Scope {
    /// Returns the same names over columns whose positions are smaller by `by`.
    pub(super) fn moved(&self, by: usize) -> Scope {
        let by = -(by as isize);
        let named = |n: &Named| Named { name: n.name.clone(), expr: shift(&n.expr, by) };
        let item = |i: &Item| Item {
            columns: i.columns.iter().map(named).collect(),
            key: i.key.as_ref().map(|k| k.iter().map(|c| c.wrapping_add_signed(by)).collect()),
            ..i.clone()
        };
        Scope { star: self.star.iter().map(named).collect(), items: self.items.iter().map(item).collect() }
    }
}

/// A column of the FROM of an enclosing SELECT.
#[derive(Clone, Debug)]
pub(super) struct Outer {
    pub(super) frame: usize,
    pub(super) column: usize,
    pub(super) ty: Type,
    /// Whether the reference is to the column's image. A subquery may tell equal values apart, so its domain
    /// has both the value and the image of a column.
    pub(super) image: bool,
}

impl Outer {
    pub(super) fn is(&self, frame: usize, column: usize) -> bool {
        self.frame == frame && self.column == column && !self.image
    }
}

/// The distinct values of the outer columns that a subquery uses.
#[derive(Clone, Debug)]
pub(super) struct Domain {
    pub(super) refs: Vec<Outer>,
    /// The relation of these values, with one column per reference. `None` if `refs` is empty.
    pub(super) node: Option<NodeId>,
}

impl Domain {
    pub(super) fn none() -> Domain {
        Domain { refs: Vec::new(), node: None }
    }
    pub(super) fn width(&self) -> usize {
        self.refs.len()
    }
}

/// A SELECT being lowered.
#[derive(Clone, Debug, Default)]
pub(super) struct Frame {
    pub(super) scope: Scope,
    /// The outer columns that are available as the columns 0.. of this SELECT's FROM.
    pub(super) refs: Vec<Outer>,
    /// The relation that has the values of `refs`.
    pub(super) domain: Option<NodeId>,
    /// Whether outer columns become [`Slot::Outer`], placeholders for columns of the enclosing query's
    /// relation.
    pub(super) direct: bool,
    /// Whether some construct cannot use outer columns directly, so that the SELECT must be lowered again
    /// over a domain.
    pub(super) direct_failed: bool,
    /// Whether FROM has only one item.
    pub(super) alone: bool,
    /// The order of the rows of FROM before grouping.
    pub(super) order: RowOrder<SortKey>,
    /// Whether `order` is the order in which the windows sorted the rows.
    pub(super) resorted: bool,
    /// Whether the select list contains set-returning calls.
    pub(super) expanded: bool,
}

/// A CTE that was lowered.
#[derive(Clone, Debug)]
pub(super) struct Cte {
    pub(super) name: String,
    pub(super) node: NodeId,
    pub(super) names: Vec<Arc<str>>,
    /// The outer columns, which are the first columns of the CTE's relation.
    pub(super) refs: Vec<Outer>,
    /// The columns of the CTE that no query can read.
    pub(super) unread: Vec<Arc<str>>,
    /// The order of the CTE's rows.
    pub(super) order: RowOrder<RowKey>,
}

/// The result of a lookup in one scope.
enum Found {
    Nothing,
    One(Expr),
    Many,
}

fn find<'n>(columns: impl Iterator<Item = &'n Named>, name: &str) -> Found {
    let mut found = Found::Nothing;
    for c in columns.filter(|c| &*c.name == name) {
        found = match found {
            Found::Nothing => Found::One(c.expr.clone()),
            _ => return Found::Many,
        };
    }
    found
}

impl Lowerer<'_> {
    /// Returns the value of `name`, `table.name` or `schema.table.name`, looked up in the innermost scope
    /// first.
    pub(super) fn column(&mut self, idents: &[Ident]) -> Result<Expr> {
        let parts: Vec<String> = idents.iter().map(Ident::folded).collect();
        let Some((name, qualifier)) = parts.split_last() else {
            return Err(Error::internal("a column without a name"));
        };
        for depth in (0..self.frames.len()).rev() {
            let scope = &self.frames[depth].scope;
            let found = match qualifier {
                [] => find(scope.star.iter(), name),
                _ => match scope.items.iter().find(|i| i.is(qualifier)) {
                    Some(item) => match find(item.columns.iter(), name) {
                        Found::Nothing if !item.hides(name) && !SYSTEM_COLUMNS.contains(&name.as_str()) => {
                            let e = self.unknown_column(&parts, item.columns.iter());
                            return Err(self.at_idents(e, idents));
                        }
                        found => found,
                    },
                    None => Found::Nothing,
                },
            };
            match found {
                Found::Nothing => {
                    let asked = |i: &&Item| qualifier.is_empty() || i.is(qualifier);
                    let hidden = scope.items.iter().filter(asked).any(|i| i.hides(name));
                    if let (true, Some(last)) = (hidden, idents.last()) {
                        return Err(self.stop(
                            last,
                            format!("the column \"{name}\", which is computed where it is read"),
                        ));
                    }
                }
                Found::One(e) => return self.seen(depth, &e),
                Found::Many => {
                    let e = Error::ambiguous(format!("column reference \"{name}\" is ambiguous"))
                        .hint("Put the table's name or alias in front of it.");
                    return Err(self.at_idents(e, idents));
                }
            }
        }
        if let ([_], Some(last)) = (parts.as_slice(), idents.last())
            && self.names_row(last)
        {
            return self.row_of(&parts, last);
        }
        if let (true, Some(last)) = (SYSTEM_COLUMNS.contains(&name.as_str()), idents.last()) {
            return Err(self.stop(last, format!("the system column {name}")));
        }
        let e = match qualifier {
            [] => {
                let visible = self.frames.iter().rev().flat_map(|f| f.scope.star.iter());
                self.unknown_column(&parts, visible)
            }
            _ => {
                let items: Vec<&str> =
                    self.frames.iter().rev().flat_map(|f| f.scope.items.iter()).map(|i| &*i.name).collect();
                let table = qualifier.last().map_or("", String::as_str);
                let e = Error::unknown_table(format!("missing FROM-clause entry for table \"{table}\""));
                hint(e, table, items.into_iter())
            }
        };
        Err(self.at_idents(e, idents))
    }

    /// Returns the item that a name denotes, and the depth of the SELECT whose FROM has the item.
    fn item(&self, qualifier: &[String]) -> Option<(usize, Item)> {
        let here = |depth: usize| {
            let item = self.frames[depth].scope.items.iter().find(|i| i.is(qualifier));
            item.map(|i| (depth, i.clone()))
        };
        (0..self.frames.len()).rev().find_map(here)
    }

    /// Returns an expression for the innermost SELECT. Its value is the value of `e`, which is an expression
    /// over the columns of the SELECT at `depth`.
    fn seen(&mut self, depth: usize, e: &Expr) -> Result<Expr> {
        for level in self.levels.iter_mut().filter(|l| depth <= l.frame) {
            level.read = level.read.max(Some(depth));
        }
        if depth + 1 == self.frames.len() { Ok(e.clone()) } else { self.outer(depth, e) }
    }

    /// Returns all columns of the item `t`, named as `t` or `t.*`.
    pub(super) fn columns_of(&mut self, qualifier: &[String], place: &impl Place) -> Result<Vec<Expr>> {
        match self.item(qualifier) {
            Some((depth, item)) if item.unread.is_empty() => {
                item.columns.iter().map(|c| self.seen(depth, &c.expr)).collect()
            }
            _ => Err(self.whole_row(place)),
        }
    }

    /// Lowers `t` or `t.*` as a value. A row that an outer join padded is NULL as a value. Padded rows are
    /// recognized by a column that is NULL only in them.
    pub(super) fn row_of(&mut self, qualifier: &[String], place: &impl Place) -> Result<Expr> {
        let Some((depth, item)) = self.item(qualifier) else { return Err(self.whole_row(place)) };
        let alone = self.frames[depth].scope.items.len() == 1;
        let present = item.present.as_ref().map(|name| find(item.columns.iter(), name));
        let present = match present {
            Some(Found::One(e)) => Some(e),
            _ if alone => None,
            _ => return Err(self.whole_row(place)),
        };
        let values = self.columns_of(qualifier, place)?;
        let types: Vec<Type> = values.iter().map(|e| e.ty().clone()).collect();
        let row = match &item.table {
            Some((schema, table)) => {
                let Some(ty) = self.catalog.named_type(Some(schema), table) else {
                    return Err(self.whole_row(place));
                };
                Expr::new(ExprKind::Row(values), Type::Record(types.into())).cast(ty)
            }
            None => {
                let here = || item.columns.iter().map(|c| c.name.clone()).collect();
                let names = item.fields.clone().unwrap_or_else(here);
                Expr::call(FuncSig::row(names, types), values)
            }
        };
        let Some(present) = present else { return Ok(row) };
        let (padded, ty) = (self.seen(depth, &present)?.is_null(), row.ty().clone());
        let kind = ExprKind::Case { whens: vec![(padded, Expr::null(ty.clone()))], otherwise: row };
        Ok(Expr::new(kind, ty))
    }

    /// Whether an identifier is the name of an item of FROM and not a column.
    pub(super) fn names_row(&self, ident: &Ident) -> bool {
        let name = ident.folded();
        let column = |f: &Frame| f.scope.star.iter().any(|c| *c.name == *name);
        let item = |f: &Frame| f.scope.items.iter().any(|i| *i.name == *name);
        !self.frames.iter().any(column) && self.frames.iter().any(item)
    }

    /// Returns a column of an item of FROM that is NULL only in rows where an outer join padded the item.
    pub(super) fn never_null(&self, qualifier: &[String]) -> Option<Vec<Ident>> {
        let item = self.frames.last()?.scope.items.iter().find(|i| i.is(qualifier))?;
        let column = item.present.as_deref()?;
        Some(vec![Ident::quoted(&item.name), Ident::quoted(column)])
    }

    fn at_idents(&self, e: Error, idents: &[Ident]) -> Error {
        match (idents.first(), idents.last()) {
            (Some(a), Some(b)) => self.at(e, &a.extent.union(b.extent)),
            _ => e,
        }
    }

    fn unknown_column<'n>(&self, parts: &[String], near: impl Iterator<Item = &'n Named>) -> Error {
        let name = parts.last().map_or("", String::as_str);
        let full = match parts {
            [] | [_] => format!("\"{name}\""),
            _ => parts.join("."),
        };
        let e = Error::unknown_column(format!("column {full} does not exist"));
        hint(e, name, near.map(|n| &*n.name))
    }

    /// Returns the expression by which this SELECT reads a value over the columns of an enclosing SELECT.
    fn outer(&mut self, frame: usize, e: &Expr) -> Result<Expr> {
        let mut failed = None;
        let out = e.rewrite(&mut |node| match node.kind() {
            ExprKind::Column(c) => match self.outer_column(frame, *c, node.ty()) {
                Ok(e) => e,
                Err(e) => {
                    failed.get_or_insert(e);
                    node
                }
            },
            _ => node,
        });
        failed.map_or(Ok(out), Err)
    }

    pub(super) fn outer_column(&mut self, frame: usize, column: usize, ty: &Type) -> Result<Expr> {
        if self.probing() {
            for p in self.probes.iter_mut().filter(|p| frame < p.base) {
                if !p.free.iter().any(|o| o.is(frame, column)) {
                    let image = Expr::column(column, ty.clone()).image().is_some();
                    let outer = |image| Outer { frame, column, ty: ty.clone(), image };
                    p.free.extend([false, true].into_iter().filter(|i| !i || image).map(outer));
                }
            }
        }
        let top = self.frames.len() - 1;
        if let Some(p) = self.frames[top].refs.iter().position(|o| o.is(frame, column)) {
            return Ok(Expr::column(p, ty.clone()));
        }
        if self.probing() {
            return Ok(Expr::null(ty.clone()));
        }
        if self.frames[top].direct && top > 0 {
            let place = match frame + 1 == top {
                true => Some(column),
                false => self.frames[top - 1].refs.iter().position(|o| o.is(frame, column)),
            };
            if let Some(p) = place {
                return Ok(Slot::Outer(p).expr(ty.clone()));
            }
        }
        for f in &mut self.frames[frame + 1..] {
            f.direct_failed |= f.direct;
        }
        Err(Error::internal("an outer column is not at hand"))
    }

    /// Returns a column of an enclosing SELECT or of this SELECT, as a value over the FROM of this SELECT.
    pub(super) fn here(&mut self, outer: &Outer) -> Result<Expr> {
        let value = self.value_here(outer)?;
        match value.image() {
            Some(image) if outer.image => Ok(image),
            _ => Ok(value),
        }
    }

    fn value_here(&mut self, outer: &Outer) -> Result<Expr> {
        if outer.frame + 1 == self.frames.len() {
            return Ok(Expr::column(outer.column, outer.ty.clone()));
        }
        match self.outer_column(outer.frame, outer.column, &outer.ty)? {
            e if reads_outer(&e) => {
                if let Some(top) = self.frames.last_mut() {
                    top.direct_failed = true;
                }
                Err(Error::internal("an outer column is not at hand"))
            }
            e => Ok(e),
        }
    }
}

impl Item {
    pub(super) fn of(name: Arc<str>, columns: Vec<Named>) -> Item {
        Item {
            name,
            schema: None,
            columns,
            key: None,
            present: None,
            table: None,
            fields: None,
            unread: Vec::new(),
        }
    }
    fn is(&self, qualifier: &[String]) -> bool {
        match qualifier {
            [table] => *table == *self.name,
            [.., schema, table] => *table == *self.name && self.schema.as_deref() == Some(schema),
            [] => false,
        }
    }
    /// Whether the item has a column of that name that the engine cannot read.
    pub(super) fn hides(&self, name: &str) -> bool {
        self.unread.iter().any(|u| **u == *name)
    }
    pub(super) fn answers_to(&self, qualifier: &[String]) -> bool {
        self.is(qualifier)
    }
}

/// Adds "Did you mean …" where a similar name exists.
pub(super) fn hint<'n>(e: Error, name: &str, near: impl Iterator<Item = &'n str>) -> Error {
    match nearest(name, near.take(1_000)) {
        Some(near) => e.hint(format!("Did you mean \"{near}\"?")),
        None => e,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_round_trip() {
        for s in [Slot::Column(3), Slot::Aggregate(0), Slot::Subquery(7), Slot::Outer(1), Slot::Window(2)] {
            assert_eq!(Slot::of(s.expr(Type::Bool).as_column().unwrap()), s);
        }
    }
}
