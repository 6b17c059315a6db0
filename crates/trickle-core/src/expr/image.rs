//! Images of values, for types whose equal values may have different images. The image of a value is how it
//! is written, byte for byte.
//!
//! The row 1.00 is not the row 1.0, though `1.0 = 1.00`: PostgreSQL outputs the stored value. Rows are
//! therefore distinguished by image, but keys of groups, joins and DISTINCT by equality.

use super::functions::resolve_function;
use super::{Expr, ExprKind};
use crate::types::{Datum, Numeric, Type, WRITTEN};
use std::cmp::Ordering;

impl Expr {
    /// Whether equal values of the expression always have the same image.
    pub(crate) fn is_exact(&self) -> bool {
        self.ty().is_exact() || self.fixed_scale().is_some()
    }

    /// Returns an expression that has different values for equal values with different images, and that is
    /// never NULL. Returns `None` if equal values always have the same image.
    ///
    /// For numerics the image is the scale, which is cheap to compute and to hash. Equal finite values of the
    /// same scale have equal digits. NaN and the infinities have no scale, and each of them is written in
    /// only one way. Equal values of `bpchar` differ in the number of trailing blanks. For every other type
    /// the image is the text.
    pub(crate) fn image(&self) -> Option<Expr> {
        if self.is_exact() {
            return None;
        }
        let length = match self.ty() {
            Type::Numeric(_) => resolve_function("scale", &[Type::Numeric(None)]),
            Type::Bpchar(_) => resolve_function("octet_length", &[Type::Bpchar(None)]),
            _ => None,
        };
        let (image, none) = match length {
            Some(length) => {
                let none = Expr::literal(Datum::Int(-1), length.ret.clone());
                (Expr::call(length, vec![self.clone()]), none)
            }
            None => (self.clone().cast(WRITTEN.clone()), Expr::literal(Datum::text(""), WRITTEN.clone())),
        };
        let ty = image.ty().clone();
        Some(Expr::new(ExprKind::Coalesce(vec![image, none]), ty))
    }

    /// Returns an expression of the same type whose values are in the same order as the images of this
    /// expression. Returns `None` unless this expression is a number whose equal values may have different
    /// images.
    pub(crate) fn rank(&self) -> Option<Expr> {
        let number = |x: f64| Expr::literal(Datum::Float(x), self.ty().clone());
        match self.ty() {
            Type::Numeric(_) => self.image().map(|image| image.cast(Type::Numeric(None))),
            Type::Float4 | Type::Float8 => {
                let minus_zero =
                    self.clone().cast(Type::Text).equals(Expr::literal(Datum::text("-0"), Type::Text));
                let kind = ExprKind::Case { whens: vec![(minus_zero, number(0.0))], otherwise: number(1.0) };
                Some(Expr::new(kind, self.ty().clone()))
            }
            _ => None,
        }
    }

    /// Whether the expression has equal values for equal values of its columns, whatever their images are.
    /// Sums and comparisons have this property; casts to `text` do not.
    pub(crate) fn respects_equality(&self) -> bool {
        let mut exact = true;
        self.visit(&mut |e| exact &= e.as_column().is_none() || e.is_exact());
        exact || stacker::maybe_grow(64 * 1024, 1024 * 1024, || self.passes_equality())
    }

    fn passes_equality(&self) -> bool {
        let own = match self.kind() {
            ExprKind::Call(sig, args) if sig.is_operator() && sig.schema.is_none() => match &*sig.name {
                "=" | "<>" | "<" | "<=" | ">" | ">=" => true,
                "+" | "-" | "*" => args.iter().all(|a| a.ty().is_number()),
                _ => false,
            },
            ExprKind::Call(..) | ExprKind::Subscript { .. } => false,
            ExprKind::Cast(e) => e.ty().is_number() && self.ty().is_number(),
            _ => true,
        };
        own && self.children().into_iter().all(Expr::respects_equality)
    }
}

/// Compares the images of two equal values. Where a group has several equal values, the result of a query has
/// the value with the least image.
pub(crate) fn compare_images(ty: &Type, a: &Datum, b: &Datum) -> Ordering {
    match (a, b) {
        _ if ty.is_exact() => Ordering::Equal,
        (Datum::Numeric(a), Datum::Numeric(b)) => scale(a).cmp(&scale(b)),
        (Datum::Text(a), Datum::Text(b)) if matches!(ty, Type::Bpchar(_)) => a.len().cmp(&b.len()),
        _ => a.to_text(ty).cmp(&b.to_text(ty)),
    }
}

fn scale(n: &Numeric) -> Option<u16> {
    if let Numeric::Finite { scale, .. } = n { Some(*scale) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expr::evaluate;
    use crate::types::Interval;
    use crate::values::{compare, compare_as};
    use std::sync::Arc;

    fn numeric(text: &str) -> Datum {
        Datum::Numeric(Arc::new(Numeric::parse(text).unwrap().unwrap()))
    }

    /// Each class has equal values of one type, each written differently. The images in a class must
    /// therefore differ.
    #[test]
    fn images_tell_apart_what_equality_does_not() {
        let day = |days, micros| Datum::Interval(Interval { months: 0, days, micros });
        let classes = [
            (Type::Numeric(None), vec![numeric("1"), numeric("1.0"), numeric("1.00")]),
            (Type::Numeric(None), vec![numeric("0"), numeric("0.000")]),
            (Type::Float8, vec![Datum::Float(0.0), Datum::Float(-0.0)]),
            (Type::Interval, vec![day(1, 0), day(0, 86_400_000_000)]),
            (Type::Bpchar(None), vec![Datum::text("a"), Datum::text("a ")]),
            (
                Type::Numeric(None).array(),
                vec![Datum::Array([numeric("1.0")].into()), Datum::Array([numeric("1.00")].into())],
            ),
            (
                Type::Bpchar(None).array(),
                vec![Datum::Array([Datum::text("a ")].into()), Datum::Array([Datum::text("a")].into())],
            ),
        ];
        for (ty, values) in classes {
            let image = Expr::column(0, ty.clone()).image().unwrap();
            let images: Vec<Datum> =
                values.iter().map(|v| evaluate::expr(&image, std::slice::from_ref(v)).unwrap()).collect();
            for (i, a) in images.iter().enumerate() {
                assert!(compare_as(&ty, &values[i], &values[0]).is_eq(), "{ty}");
                for (j, b) in images.iter().enumerate() {
                    assert_eq!(compare_images(&ty, &values[i], &values[j]), a.cmp(b), "{ty}: {images:?}");
                }
                assert!(images[i + 1..].iter().all(|b| a != b), "{ty}: {images:?}");
            }
            if let Some(rank) = Expr::column(0, ty.clone()).rank() {
                let rank = |v: &Datum| evaluate::expr(&rank, std::slice::from_ref(v)).unwrap();
                let ranks: Vec<Datum> = values.iter().map(rank).collect();
                for (i, j) in (0..values.len()).flat_map(|i| (0..values.len()).map(move |j| (i, j))) {
                    assert_eq!(compare(&ranks[i], &ranks[j]), images[i].cmp(&images[j]), "{ty}");
                }
            }
            let null = evaluate::expr(&image, &[Datum::Null]).unwrap();
            assert!(!null.is_null(), "{ty}");
        }
        for exact in ["bigint", "numeric(10,2)", "char(3)", "text", "timestamptz", "uuid", "date[]"] {
            assert!(Expr::column(0, Type::parse(exact).unwrap()).image().is_none(), "{exact}");
        }
        for value in ["NaN", "Infinity", "-Infinity"] {
            let image = Expr::column(0, Type::Numeric(None)).image().unwrap();
            assert_eq!(evaluate::expr(&image, &[numeric(value)]).unwrap().to_string(), "-1");
        }
    }
}
