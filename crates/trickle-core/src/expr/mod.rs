//! Typed scalar expressions over the columns of one input row.
//!
//! Columns are positions. Every node knows its type. No expression is raw SQL text. An unknown function is an
//! [`ExprKind::Call`] with typed arguments, a volatility and a strictness, like any other function.

mod clock;
pub mod evaluate;
mod facts;
mod form;
mod func;
pub mod functions;
mod image;
mod kind;
mod make;
pub(crate) mod opaque;
mod schema;
mod simplify;
mod walk;

pub use clock::Moment;
pub use form::FormPiece;
pub(crate) use form::spaced;
pub use func::{FuncKind, FuncSig, Volatility};
pub(crate) use image::compare_images;
pub use kind::{ExprKind, IsTest, SortKey, Subscript};
pub use schema::{Column, Schema};

use crate::hash::hash_of;
use crate::types::{Datum, Type};
use facts::cast_can_raise;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// A scalar expression with its type. Copies of an expression share one allocation.
#[derive(Clone)]
pub struct Expr(Arc<Form>);

/// The contents of an expression. Frequently needed properties are derived once, from the properties of the
/// operands.
struct Form {
    kind: ExprKind,
    ty: Type,
    hash: u64,
    volatility: Volatility,
    raises: bool,
    /// Whether [`Expr::simplified`] may change the expression.
    logical: bool,
    /// Whether the expression reads the time of a refresh.
    clock: bool,
    /// The number of nodes of the expression; a shared node counts once for each occurrence.
    size: u32,
}

impl PartialEq for Expr {
    fn eq(&self, other: &Expr) -> bool {
        let (a, b) = (&*self.0, &*other.0);
        Arc::ptr_eq(&self.0, &other.0) || (a.hash == b.hash && a.ty == b.ty && a.kind == b.kind)
    }
}
impl Eq for Expr {}
impl Hash for Expr {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0.hash);
    }
}
impl fmt::Debug for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Expr").field("kind", &self.0.kind).field("ty", &self.0.ty).finish()
    }
}

impl Expr {
    /// Makes an expression of the given form and type. The caller must ensure that an expression of this form
    /// has type `ty`.
    pub(crate) fn new(kind: ExprKind, ty: Type) -> Expr {
        let (mut volatility, mut raises) = (Volatility::Immutable, false);
        match &kind {
            ExprKind::Call(sig, args) => {
                let safe = clock::is_in_range(sig, args) || facts::divides_by_constant(sig, args);
                (volatility, raises) = (sig.volatility, sig.raises && !safe);
            }
            ExprKind::Quantified { op: sig, .. } => {
                (volatility, raises) = (sig.volatility, sig.raises);
            }
            ExprKind::ManyRows => raises = true,
            ExprKind::Cast(from) => {
                volatility = functions::cast_volatility(from.ty(), &ty);
                raises = cast_can_raise(from.ty(), &ty)
                    && !clock::is_now(from)
                    && clock::written_time(from, &ty).is_none();
            }
            _ => {}
        }
        let mut logical = matches!(
            kind,
            ExprKind::Is { .. }
                | ExprKind::Not(_)
                | ExprKind::And(_)
                | ExprKind::Or(_)
                | ExprKind::Case { .. }
                | ExprKind::Coalesce(_)
        );
        let mut clock = matches!(kind, ExprKind::Clock(_));
        let mut size = 1u32;
        kind.operands(&mut |e| {
            size = size.saturating_add(e.0.size);
            volatility = volatility.max(e.0.volatility);
            raises |= e.0.raises;
            logical |= e.0.logical;
            clock |= e.0.clock;
        });
        let hash = hash_of(&(&kind, &ty));
        Expr(Arc::new(Form { kind, ty, hash, volatility, raises, logical, clock, size }))
    }
    /// Returns the number of nodes of the expression. Operands may be shared, but every walk or print of an
    /// expression visits an operand once for each occurrence. The size of `n` nested NULLIFs is therefore
    /// about 2ⁿ.
    pub(crate) fn size(&self) -> usize {
        self.0.size as usize
    }
    /// Returns the form of the expression.
    pub(crate) fn kind(&self) -> &ExprKind {
        &self.0.kind
    }
    /// Returns the type of the expression.
    pub(crate) fn ty(&self) -> &Type {
        &self.0.ty
    }

    /// Returns the terms of a top-level conjunction. Any other expression is its own only term, and TRUE has
    /// no terms.
    pub(crate) fn terms(&self) -> &[Expr] {
        match self.kind() {
            ExprKind::And(terms) => terms,
            ExprKind::Literal(Datum::Bool(true)) => &[],
            _ => std::slice::from_ref(self),
        }
    }
    /// Copies the [`Expr::terms`].
    pub(crate) fn conjuncts(&self) -> Vec<Expr> {
        self.terms().to_vec()
    }

    /// Returns the column position, if the expression is a bare column.
    pub(crate) fn as_column(&self) -> Option<usize> {
        match self.kind() {
            ExprKind::Column(i) => Some(*i),
            _ => None,
        }
    }
    /// Returns the value, if the expression is a literal.
    pub(crate) fn as_literal(&self) -> Option<&Datum> {
        match self.kind() {
            ExprKind::Literal(d) => Some(d),
            _ => None,
        }
    }
}
