//! The columns of a relation.

use super::Expr;
use crate::types::Type;
use std::sync::Arc;

/// A column of a relation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Column {
    /// The name of the column for people who read plans and SQL. The name does not identify the column, since
    /// columns are positions.
    pub label: Arc<str>,
    /// The type of the column's values.
    pub ty: Type,
    /// Whether the column may contain NULL.
    pub nullable: bool,
}

/// An ordered list of columns.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Schema {
    columns: Arc<[Column]>,
}

impl Schema {
    /// Makes a schema with these columns, in this order.
    pub(crate) fn new(columns: impl IntoIterator<Item = Column>) -> Schema {
        Schema { columns: columns.into_iter().collect() }
    }
    /// Returns all columns.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }
    /// Returns the column at position `index`. Returns `None` where the schema has fewer columns.
    pub fn column(&self, index: usize) -> Option<&Column> {
        self.columns.get(index)
    }
    /// Returns the number of columns.
    pub fn len(&self) -> usize {
        self.columns.len()
    }
    /// Whether the schema has no columns.
    pub fn is_empty(&self) -> bool {
        self.columns.is_empty()
    }
    /// Returns the columns of `self`, followed by the columns of `other`.
    #[must_use]
    pub(crate) fn concat(&self, other: &Schema) -> Schema {
        Schema { columns: self.columns.iter().chain(other.columns.iter()).cloned().collect() }
    }
    /// Returns the schema of the columns at `positions`, in this order.
    #[must_use]
    pub(crate) fn select(&self, positions: &[usize]) -> Schema {
        Schema { columns: positions.iter().filter_map(|i| self.columns.get(*i)).cloned().collect() }
    }
    /// Returns the same columns, all of them nullable.
    #[must_use]
    pub(crate) fn all_nullable(&self) -> Schema {
        Schema { columns: self.columns.iter().map(|c| Column { nullable: true, ..c.clone() }).collect() }
    }
    /// Returns a reference to column `index` of rows of this schema.
    pub fn expr(&self, index: usize) -> Expr {
        Expr::column(index, self.columns.get(index).map_or(Type::Unknown, |c| c.ty.clone()))
    }
    /// Returns references to all columns, in order: the expressions of the identity map.
    pub(crate) fn identity(&self) -> Vec<Expr> {
        (0..self.len()).map(|i| self.expr(i)).collect()
    }
    /// Whether both schemas have the same types in the same order. Labels and nullability are ignored.
    pub fn same_types(&self, other: &Schema) -> bool {
        self.len() == other.len() && self.columns.iter().zip(other.columns.iter()).all(|(a, b)| a.ty == b.ty)
    }
    /// Whether equal rows of this schema always have the same image.
    pub(crate) fn is_exact(&self) -> bool {
        self.columns.iter().all(|c| c.ty.is_exact())
    }
    /// Returns the first column whose type has no equality operator, if there is one.
    pub(crate) fn without_equality(&self) -> Option<&Column> {
        self.columns.iter().find(|c| !c.ty.has_equality())
    }
}
