//! Lowers casts, and finds the types that a query names.

use super::{Lowerer, literal};
use crate::error::{Error, Result};
use crate::expr::{Expr, ExprKind};
use crate::syntax::{Place, TypeName};
use crate::types::{Datum, Type};
use crate::verdict::{Cause, ReasonKind};

impl Lowerer<'_> {
    /// Finds a type by the name that the query gives.
    pub(super) fn type_named(&self, ty: &TypeName) -> Result<Type> {
        ty.resolve(&|schema, name| self.catalog.named_type(schema, name)).map_err(|name| {
            let called = format!("type \"{}\"", name.to_lowercase());
            let e = Error::unknown_object(format!("{called} does not exist"))
                .hint("Only built-in types and those of the catalog are known.")
                .doubted(called, self.catalog.doubt(&name, &[]));
            match ty.object() {
                Some(name) => self.at(e, name),
                None => e,
            }
        })
    }

    /// Whether a type is a domain with constraints, or an array of such a domain. PostgreSQL checks the
    /// constraints in a cast to the type.
    pub(super) fn is_constrained(&self, ty: &TypeName) -> bool {
        let constrained = std::cell::Cell::new(false);
        let look = |schema: Option<&str>, name: &str| {
            constrained.set(constrained.get() || self.catalog.is_constrained(schema, name));
            self.catalog.named_type(schema, name)
        };
        ty.resolve(&look).is_ok() && constrained.get()
    }

    /// Casts to a type that is given by name. If the type is a time type with a precision, the value is
    /// rounded to this precision. The rounding function is the one that PostgreSQL uses.
    pub(super) fn cast_to(&mut self, value: Expr, ty: &TypeName, place: &impl Place) -> Result<Expr> {
        if let Some(fields) = ty.interval_fields() {
            return self.interval_of(value, fields, ty.precision, place);
        }
        let to = self.type_named(ty)?;
        if self.is_constrained(ty) {
            return Err(self.stop(place, format!("a cast to {}, which has constraints of domains", ty.text)));
        }
        let value = self.cast(value, &to, place)?;
        let Some(digits) = ty.precision.map(|p| i64::try_from(p).map_or(6, |p| p.min(6))) else {
            return Ok(value);
        };
        let (name, modifier) = match to {
            Type::Timestamp => ("timestamp", digits),
            Type::Timestamptz => ("timestamptz", digits),
            Type::Time => ("time", digits),
            // The modifier of an interval has the mask of all fields in its upper half and the number of
            // digits in its lower half.
            Type::Interval => ("interval", 0x7FFF << 16 | digits),
            // The name of a type that the engine does not know includes its modifier, so the cast rounds the
            // value.
            Type::Other(_) => return Ok(value),
            _ => return Err(self.stop(place, format!("a cast to {}", ty.text))),
        };
        self.builtin(name, vec![value, Expr::literal(Datum::Int(modifier), Type::Int4)])
    }

    /// Lowers an explicit cast.
    pub(super) fn cast(&mut self, value: Expr, ty: &Type, place: &impl Place) -> Result<Expr> {
        if let (Some(Datum::Text(text)), Type::Unknown) = (value.as_literal(), value.ty()) {
            if literal::is_clock(text, ty) {
                let help = "Write the date itself; a stream table changes with its data, not with the clock.";
                let construct = format!("the constant '{text}'");
                self.because(ReasonKind::Never, Cause::Surroundings, place, construct, help);
            }
            let text = text.clone();
            let base = if matches!(ty, Type::Varchar(Some(_)) | Type::Bpchar(_)) { &Type::Text } else { ty };
            return literal::read(&text, base).map(|e| e.cast(ty.clone()));
        }
        match (value.kind(), ty) {
            // ARRAY[]::type[], and constants in an array that is cast, take the element type from the cast.
            (ExprKind::Array(elements), Type::Array(element)) => {
                // An array of arrays has the same type as its elements.
                let of = |e: &Expr| if e.ty().element().is_some() { ty.clone() } else { (**element).clone() };
                let cast: Result<Vec<Expr>> = elements
                    .clone()
                    .into_iter()
                    .map(|e| {
                        let to = of(&e);
                        self.cast(e, &to, place)
                    })
                    .collect();
                Ok(Expr::new(ExprKind::Array(cast?), ty.clone()))
            }
            _ if *value.ty() == Type::Unknown => self.coerce(value, ty),
            _ if value.ty() != ty && self.check_cast(value.ty(), ty).is_err() => {
                let checked = self.check_cast(value.ty(), ty);
                self.located(checked, place).map(|()| value)
            }
            // A text that is cast from a `name` has the collation of `name`.
            (_, text) if value.ty().is_name() && text.is_string() && text.collation().is_none() => {
                let ty = text.collated("\"C\"", true);
                Ok(value.cast(ty))
            }
            // A text keeps its collation when it is cast to another text type.
            _ => {
                let ty = value.ty().recollated(ty);
                Ok(value.cast(ty))
            }
        }
    }
}
