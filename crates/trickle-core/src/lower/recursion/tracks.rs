//! Lowers SEARCH and CYCLE to ordinary columns, as PostgreSQL's manual expands them (7.8.2). A path is an
//! array; each step appends its row.
//!
//! PostgreSQL's paths are arrays of rows, which no table can hold. Here, an element is the row's only column,
//! or the text of all the row's columns. Two elements are equal if and only if their rows are equal. No query
//! can read a path or the column that SEARCH sets.

use super::super::clause::ClauseContext;
use super::Lowerer;
use crate::error::{Error, Result};
use crate::expr::functions::{common_type, resolve_function};
use crate::expr::{Expr, ExprKind, FuncSig, Volatility};
use crate::graph::Schema;
use crate::rel::Fixpoint;
use crate::syntax::{Expr as Ast, Ident, Query};
use crate::types::Type;
use std::sync::Arc;

/// The columns that the clauses after a recursive query add to its rows.
pub(super) struct Tracks {
    pub(super) columns: Vec<Track>,
    /// The columns that no query can read.
    pub(super) unread: Vec<Arc<str>>,
}

/// A column that SEARCH or CYCLE adds.
pub(super) struct Track {
    pub(super) name: Arc<str>,
    kind: Kind,
}

enum Kind {
    /// The cycle column: whether the row is already on the path that led to it. The next column holds that
    /// path.
    Cycle { by: Vec<usize>, value: Expr, other: Expr },
    /// The path: the rows that led to this row, each identified by these columns.
    Way(Vec<usize>),
    /// The number of rounds that led to the row.
    Round,
}

impl Track {
    /// Whether a query can read the column.
    pub(super) fn is_visible(&self) -> bool {
        matches!(self.kind, Kind::Cycle { .. })
    }
}

impl Lowerer<'_> {
    /// Returns the columns that the clauses after a recursive query add to the columns `names` of types
    /// `types`.
    pub(super) fn tracks(
        &mut self,
        query: &Query,
        (names, rows): (&[Arc<str>], &Schema),
        fixpoint: Fixpoint,
    ) -> Result<Tracks> {
        let (mut tracks, mut unread): (Vec<Track>, Vec<Arc<str>>) = (Vec::new(), Vec::new());
        if let Some(search) = &query.search {
            let by = self.track_columns("search", &search.by, names)?;
            let kind = if search.depth { Kind::Way(by) } else { Kind::Round };
            // No query can read this column, so the column matters only for the duplicates that UNION drops.
            // Under UNION ALL the column is not computed.
            let name = self.added(&search.set, names, &[])?;
            unread.push(name.clone());
            if fixpoint == Fixpoint::Distinct {
                tracks.push(Track { name, kind });
            }
        }
        if let Some(cycle) = &query.cycle {
            let by = self.track_columns("cycle", &cycle.by, names)?;
            let (value, other) = self.marks(cycle.values.as_ref(), &cycle.set)?;
            let kind = Kind::Cycle { by: by.clone(), value, other };
            let name = self.added(&cycle.set, names, &unread)?;
            unread.push(name.clone());
            let way = self.added(&cycle.using, names, &unread)?;
            unread.retain(|n| *n != name);
            unread.push(way.clone());
            tracks.extend([Track { name, kind }, Track { name: way, kind: Kind::Way(by) }]);
        }
        for track in &tracks {
            let Kind::Way(by) = &track.kind else { continue };
            let key = key(by, &rows.identity());
            let exact = by.len() == 1 || by.iter().all(|c| rows.columns()[*c].ty.is_exact());
            if key.volatility() != Volatility::Immutable || !key.ty().has_equality() || !exact {
                return Err(self.stop(query, "CYCLE or SEARCH by columns of such types"));
            }
        }
        Ok(Tracks { columns: tracks, unread })
    }

    /// Returns the positions of the columns that a clause names.
    fn track_columns(&self, clause: &str, by: &[Ident], names: &[Arc<str>]) -> Result<Vec<usize>> {
        let place = |i: &Ident| {
            let name = i.folded();
            names.iter().position(|n| **n == *name).ok_or_else(|| {
                let e = Error::syntax(format!("{clause} column \"{name}\" not in WITH query column list"));
                self.at(e, i)
            })
        };
        by.iter().map(place).collect()
    }

    fn added(&self, name: &Ident, names: &[Arc<str>], others: &[Arc<str>]) -> Result<Arc<str>> {
        let new = name.folded();
        if names.iter().chain(others).any(|n| **n == *new) {
            let e = Error::syntax(format!("column name \"{new}\" already used in WITH query column list"));
            return Err(self.at(e, name));
        }
        Ok(Arc::from(new))
    }

    /// Returns the two values of a cycle's mark.
    fn marks(&mut self, values: Option<&(Ast, Ast)>, place: &Ident) -> Result<(Expr, Expr)> {
        let Some((value, other)) = values else { return Ok((Expr::bool(true), Expr::bool(false))) };
        let mut cx = ClauseContext::new("CYCLE");
        let (value, other) = (self.expr(value, &mut cx)?, self.expr(other, &mut cx)?);
        let ty = common_type(&[value.ty().clone(), other.ty().clone()]).filter(Type::has_equality);
        let Some(ty) = ty else {
            let e = Error::type_mismatch("CYCLE types cannot be matched");
            return Err(self.at(e, place));
        };
        Ok((self.coerce(value, &ty)?, self.coerce(other, &ty)?))
    }
}

impl Tracks {
    /// Returns the values of the added columns for a row of the base. `row` has the values of this row's own
    /// columns.
    pub(super) fn begin(&self, row: &[Expr]) -> Vec<Expr> {
        let first = |t: &Track| match &t.kind {
            Kind::Cycle { other, .. } => other.clone(),
            Kind::Way(by) => way(key(by, row)),
            Kind::Round => Expr::int8(0),
        };
        self.columns.iter().map(first).collect()
    }

    /// Returns the values of the added columns for the row `next`, and the conditions of the step that
    /// derives `next`. `now` are the values of the added columns in the row from which the step starts.
    pub(super) fn go_on(&self, now: &[Expr], next: &[Expr]) -> Result<(Vec<Expr>, Vec<Expr>)> {
        let (mut columns, mut on) = (Vec::new(), Vec::new());
        for (i, track) in self.columns.iter().enumerate() {
            columns.push(match &track.kind {
                Kind::Cycle { by, value, other } => {
                    let ty = value.ty().clone();
                    let differs = FuncSig::comparison("<>", ty.clone(), ty.clone());
                    on.push(Expr::call(differs, vec![now[i].clone(), value.clone()]));
                    let place = known("array_position", vec![now[i + 1].clone(), key(by, next)])?;
                    let whens = vec![(place.is_not_null(), value.clone())];
                    Expr::new(ExprKind::Case { whens, otherwise: other.clone() }, ty)
                }
                Kind::Way(by) => known("array_append", vec![now[i].clone(), key(by, next)])?,
                Kind::Round => {
                    let int8 = [Type::Int8, Type::Int8];
                    let plus = FuncSig::operator("+", int8.to_vec(), Type::Int8);
                    Expr::call(plus, vec![now[i].clone(), Expr::int8(1)])
                }
            });
        }
        Ok((columns, on))
    }
}

fn known(function: &str, args: Vec<Expr>) -> Result<Expr> {
    let types: Vec<Type> = args.iter().map(|a| a.ty().clone()).collect();
    let sig = resolve_function(function, &types);
    let sig = sig.ok_or_else(|| Error::internal(format!("{function}() is not known")))?;
    Ok(Expr::call(sig, args))
}

/// Returns a value that is equal in two rows if and only if the columns `by` are equal in both rows, where
/// NULL is equal to NULL. For a single scalar column, the value is the column itself. Otherwise the value is
/// the text of an array of the columns.
fn key(by: &[usize], row: &[Expr]) -> Expr {
    match by {
        [one] if row[*one].ty().element().is_none() && !matches!(row[*one].ty(), Type::Record(_)) => {
            let ty = row[*one].ty().base();
            if ty == *row[*one].ty() { row[*one].clone() } else { row[*one].clone().cast(ty) }
        }
        several => {
            let text = |c: &usize| {
                if *row[*c].ty() == Type::Text { row[*c].clone() } else { row[*c].clone().cast(Type::Text) }
            };
            let texts = several.iter().map(text).collect();
            Expr::new(ExprKind::Array(texts), Type::Text.array()).cast(Type::Text)
        }
    }
}

fn way(key: Expr) -> Expr {
    let ty = key.ty().clone().array();
    Expr::new(ExprKind::Array(vec![key]), ty)
}
