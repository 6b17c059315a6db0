//! Lowers operators and comparisons, of values and of rows.

use super::Lowerer;
use crate::error::{Error, Result};
use crate::expr::functions::resolve_operator;
use crate::expr::{Expr, ExprKind, FuncSig};
use crate::syntax::Place;
use crate::types::{Datum, Type};
use std::sync::Arc;

/// Splits a qualified operator into its schema and its name, which contains no dot.
fn parted(op: &str) -> (Option<&str>, &str) {
    op.rsplit_once('.').map_or((None, op), |(schema, op)| (Some(schema), op))
}

impl Lowerer<'_> {
    /// Finds the operator for operands of these types. `op` may be qualified with a schema other than
    /// `pg_catalog`. A qualified name denotes one of the engine's own operators only if an operand has a type
    /// that is not built in. (The comparison operators of such a type are in the type's schema.) Otherwise
    /// the name denotes the operator of that schema, even if an operator of the same name in another schema
    /// fits better.
    pub(super) fn operator(&self, op: &str, types: &[Type]) -> Result<Arc<FuncSig>> {
        let (schema, op) = parted(op);
        let foreign = types.iter().any(|t| matches!(t.element().unwrap_or(t), Type::Other(_)));
        // Without a server, an extension's operator for its own type is preferred to a built-in operator for
        // any type, such as `||` of arrays.
        let listed = || self.catalog.operator(schema, op, types).filter(|sig| sig.schema.is_some());
        let listed = self.catalog.doubt(op, types).filter(|_| foreign).and_then(|_| listed());
        let own = || resolve_operator(op, types).filter(|_| schema.is_none() || foreign);
        listed.or_else(own).or_else(|| self.catalog.operator(schema, op, types)).ok_or_else(|| {
            let call = match types {
                [t] => format!("{op} {t}"),
                _ => {
                    let names: Vec<String> = types.iter().map(ToString::to_string).collect();
                    names.join(&format!(" {op} "))
                }
            };
            Error::unknown_function(format!("operator does not exist: {call}"))
                .hint("Cast an operand so that both have types the operator knows.")
                .doubted(format!("the operator {call}"), self.catalog.doubt(op, types))
        })
    }

    /// Notes a reason for an operator whose result no delta can bring up to date. Stops lowering at an
    /// unknown operator, if the engine knows only the name of an operand's type.
    pub(super) fn check_operator(&mut self, op: &str, types: &[Type], place: &impl Place) -> Result<()> {
        match self.operator(op, types) {
            Ok(sig) if sig.schema.is_some() => self.check_volatility(&sig, place),
            Ok(_) => {}
            Err(_) => self.known_types(&format!("the operator {op}"), types, place)?,
        }
        Ok(())
    }

    /// Lowers `l op r`.
    pub(super) fn compare(&self, op: &str, l: Expr, r: Expr) -> Result<Expr> {
        let sig = self.operator(op, &[l.ty().clone(), r.ty().clone()])?;
        self.call(sig, vec![l, r])
    }

    /// Lowers `(l, …) op (r, …)` by SQL's three-valued rules. `=` is true if all parts are equal, and `<>` is
    /// true if one part differs. For `<`, `<=`, `>` and `>=`, the first parts that differ decide.
    pub(super) fn compare_rows(&self, op: &str, left: Vec<Expr>, right: Vec<Expr>) -> Result<Expr> {
        if left.len() != right.len() {
            return Err(Error::syntax("unequal number of entries in row expressions"));
        }
        let pairs: Vec<(Expr, Expr)> = left.into_iter().zip(right).collect();
        let (_, bare) = parted(op);
        match (bare, pairs.len()) {
            (_, 1) => {
                let mut pairs = pairs;
                match pairs.pop() {
                    Some((l, r)) => self.compare(op, l, r),
                    None => Ok(Expr::bool(true)),
                }
            }
            ("=", _) => {
                let terms = pairs.into_iter().map(|(l, r)| self.compare("=", l, r));
                Ok(Expr::and(terms.collect::<Result<Vec<_>>>()?))
            }
            ("<>", _) => {
                let terms = pairs.into_iter().map(|(l, r)| self.compare("<>", l, r));
                Ok(Expr::or(terms.collect::<Result<Vec<_>>>()?))
            }
            ("<" | "<=" | ">" | ">=", _) => self.lexical(bare, pairs),
            _ => Err(Error::unknown_function(format!("operator {op} does not compare rows"))),
        }
    }

    /// Compares two rows lexicographically: `a₁ < b₁`, or `a₁ = b₁` and the rest of the left row is less than
    /// the rest of the right row. The first pair that is not equal decides. If the comparison of that pair is
    /// NULL, the result is NULL.
    fn lexical(&self, op: &str, pairs: Vec<(Expr, Expr)>) -> Result<Expr> {
        let strict = &op[..1];
        let mut result: Option<Expr> = None;
        for (l, r) in pairs.into_iter().rev() {
            result = Some(match result {
                None => self.compare(op, l, r)?,
                Some(rest) => {
                    let equal = self.compare("=", l.clone(), r.clone())?;
                    let less = self.compare(strict, l, r)?;
                    Expr::new(ExprKind::Case { whens: vec![(equal, rest)], otherwise: less }, Type::Bool)
                }
            });
        }
        result.ok_or_else(|| Error::internal("a comparison of empty rows"))
    }

    /// Lowers `l IS [NOT] DISTINCT FROM r`; `same` is true for `IS NOT DISTINCT FROM`.
    pub(super) fn distinct_from(&self, l: Expr, r: Expr, same: bool) -> Result<Expr> {
        // PostgreSQL requires no equality operator if one operand is the constant NULL.
        for (value, other) in [(&l, &r), (&r, &l)] {
            let null = *other.ty() == Type::Unknown && other.as_literal().is_some_and(Datum::is_null);
            if null && *value.ty() != Type::Unknown {
                return Ok(if same { value.clone().is_null() } else { value.clone().is_not_null() });
            }
        }
        // The equality operator must exist. Its signature gives the types that the operands are cast to.
        let sig = self.operator("=", &[l.ty().clone(), r.ty().clone()])?;
        let mut args = self.arguments(&sig, vec![l, r])?.into_iter();
        match (args.next(), args.next()) {
            (Some(left), Some(right)) => {
                Ok(Expr::new(ExprKind::Distinct { left, right, negated: same }, Type::Bool))
            }
            _ => Err(Error::internal("IS DISTINCT FROM without operands")),
        }
    }

    /// Lowers `l op ANY|ALL (array)`.
    pub(super) fn quantified(&self, op: &str, l: Expr, array: Expr, all: bool) -> Result<Expr> {
        let array = match array.ty() {
            // An untyped literal is read as an array of the left operand's type.
            Type::Unknown => {
                let element = if *l.ty() == Type::Unknown { Type::Text } else { l.ty().base() };
                self.coerce(array, &element.array())?
            }
            _ => array,
        };
        let Some(element) = array.ty().element().cloned() else {
            return Err(Error::type_mismatch("op ANY/ALL (array) requires array on right side"));
        };
        let sig = self.operator(op, &[l.ty().clone(), element.clone()])?;
        if sig.ret != Type::Bool {
            return Err(Error::type_mismatch("op ANY/ALL (array) requires operator to yield boolean"));
        }
        let (Some(lt), Some(rt)) = (sig.args.first(), sig.args.get(1)) else {
            return Err(Error::internal("an operator without operands"));
        };
        let l = if l.ty().base() == lt.base() { l } else { self.coerce(l, lt)? };
        let array = if element.base() == rt.base() { array } else { array.cast(rt.clone().array()) };
        Ok(Expr::new(ExprKind::Quantified { op: sig, arg: l, array, all }, Type::Bool))
    }

    /// Lowers `l [NOT] IN (values)`: whether `l` equals one of the values. The result is NULL if no value
    /// equals `l` and one comparison is NULL.
    pub(super) fn in_list(&self, left: Vec<Expr>, list: Vec<Vec<Expr>>, negated: bool) -> Result<Expr> {
        let constants = left.len() == 1
            && list.len() > 1
            && list.iter().flatten().all(|e| e.as_literal().is_some_and(|d| !d.is_null()));
        if constants {
            let elements: Vec<Expr> = list.iter().flatten().cloned().collect();
            let types: Vec<Type> = std::iter::once(left[0].ty().clone())
                .chain(elements.iter().map(|e| e.ty().clone()))
                .collect();
            // PostgreSQL compares `l` with an array, whose elements have the common type of `l` and all
            // values.
            if let Some(ty) = crate::expr::functions::common_type(&types) {
                let elements =
                    elements.into_iter().map(|e| self.coerce(e, &ty.base())).collect::<Result<Vec<_>>>()?;
                let array = Expr::new(ExprKind::Array(elements), ty.base().array());
                let op = if negated { "<>" } else { "=" };
                return self.quantified(op, left[0].clone(), array, negated);
            }
        }
        let terms = list.into_iter().map(|row| self.compare_rows("=", left.clone(), row));
        let any = Expr::or(terms.collect::<Result<Vec<_>>>()?);
        Ok(if negated { any.negated() } else { any })
    }
}
