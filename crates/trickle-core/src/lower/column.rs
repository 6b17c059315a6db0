//! Resolves names to columns, and to rows of the items of FROM.

use super::Lowerer;
use super::scope::{Frame, Item, Named, hint};
use crate::catalog::SYSTEM_COLUMNS;
use crate::error::{Error, Result};
use crate::expr::{Expr, ExprKind, FuncSig};
use crate::syntax::{Ident, Place};
use crate::types::Type;
use std::sync::Arc;

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
                _ => match scope.items.iter().find(|i| i.answers_to(qualifier)) {
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
                    let asked = |i: &&Item| qualifier.is_empty() || i.answers_to(qualifier);
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
            let item = self.frames[depth].scope.items.iter().find(|i| i.answers_to(qualifier));
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
        // A cast to a row type checks the constraints of its domains. The server checks nothing where it
        // makes a whole row, and rows may be older than a constraint.
        let named = |(schema, table): &(Arc<str>, Arc<str>)| {
            let ty = self.catalog.named_type(Some(schema), table);
            ty.filter(|_| !self.catalog.is_constrained(Some(schema), table))
        };
        let row = match item.table.as_ref().map(named) {
            Some(Some(ty)) => Expr::new(ExprKind::Row(values), Type::Record(types.into())).cast(ty),
            Some(None) if item.fields.is_none() => return Err(self.whole_row(place)),
            // A catalog that only knows definitions may lack the row type of a view.
            Some(None) | None => {
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
        let item = self.frames.last()?.scope.items.iter().find(|i| i.answers_to(qualifier))?;
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
}
