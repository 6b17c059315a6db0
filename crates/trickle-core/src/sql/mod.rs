//! SQL text for PostgreSQL: the typed tree, the rendering of plans, the printer. All SQL is made here.
//!
//! [`render_query`] and [`render_delta`] turn a plan into a typed tree ([`ast`]), with names made from the
//! labels of the plan; [`print()`] writes it. Physical facts are typed. A [`Fragment`] says which [`Weight`]
//! its rows carry, whether it is positive (no weight below 1) and whether it is consolidated (each row once,
//! weight ≠ 0). After each operator, these facts are checked against the plan's.

pub mod ast;
mod condition;
mod expand;
mod expr;
mod fragment;
mod groups;
pub mod ident;
mod joins;
mod leaves;
mod naming;
mod print;
mod profile;
mod recursion;
mod render;
mod shown;
mod sources;
#[cfg(test)]
mod tests;
mod tidy;
mod top;

pub use fragment::{Block, Body, Closed, Fragment, Names, Weight};
pub use ident::{Ident, NameSet, Qualified};
pub use print::{Printed, print, print_query, quoted};
pub use profile::Profile;
pub use render::{
    Changed, Named, RenderContext, Rendered, render_changes, render_delta, render_query, render_states,
};
pub use sources::{BufferSources, Changes, Expecting, Ranged, Relation, Sources, Stored, Window};

pub(crate) use ast::{Scalar, SetOperator};
pub(crate) use condition::Condition;
pub(crate) use expr::{aggregate, opaque, over, scalar};
pub use groups::image;
pub(crate) use groups::{Same, accumulator, differs};
pub(crate) use joins::not_in;

use crate::error::Result;

/// The way in which PostgreSQL computes an operator.
pub trait Render {
    /// Renders the operator over rendered inputs, which are in the order of
    /// [`Relational::inputs`](crate::rel::Relational::inputs).
    ///
    /// # Errors
    /// An input that is not positive where the operator needs it, or a source that the context does not know.
    fn render(&self, inputs: Vec<Fragment>, cx: &mut RenderContext<'_>) -> Result<Fragment>;
}
