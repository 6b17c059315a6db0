//! SQL for PostgreSQL: the typed syntax tree, the rendering of plans, and the printer. Only this module makes
//! SQL text.
//!
//! The functions `render_query` and `render_delta` turn a plan into a typed syntax tree ([`ast`]), with
//! names made from the labels of the plan. The function [`print()`] writes the tree as text. Physical facts
//! about rows are part of the types. A `Fragment` says which `Weight` its rows have. It also says whether
//! it is positive (no weight below 1) and consolidated (each row once, weight ≠ 0). After each operator is
//! rendered, these facts are compared with the plan's claims.

pub mod ast;
mod condition;
mod expand;
mod expr;
mod fragment;
mod groups;
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

pub(crate) use crate::ident::NameSet;
pub use crate::ident::{Ident, Qualified};
for_tests! {
    use fragment::{Block, Body, Closed, Fragment, Names, Weight};
    use print::print_query;
    use render::{Render, RenderContext, render_delta, render_query};
    use sources::{BufferSources, Changes, Relation, Sources, Stored, Window};
}
pub use print::{Printed, print, quoted};
pub use profile::Profile;
pub(crate) use render::{Changed, Named, Rendered, render_changes, render_states};
pub(crate) use sources::{Expecting, Ranged};

pub(crate) use ast::{Scalar, SetOperator};
pub(crate) use condition::Condition;
pub(crate) use expr::{aggregate, opaque, over, scalar};
pub use groups::image_of;
pub(crate) use groups::{Same, accumulator, differs, image};
pub(crate) use joins::not_in;
