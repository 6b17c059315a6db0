//! PostgreSQL text: typed AST, rendering of plans, printing. The only place that makes SQL.

/// How PostgreSQL computes an operator.
pub trait Render {}
