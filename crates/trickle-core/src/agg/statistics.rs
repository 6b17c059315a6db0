//! Standard deviation, variance, correlation and regression (PostgreSQL manual, 9.21). The groups that a
//! change touched are recomputed, since sums of squares of floats are not exact: after a value is added and
//! subtracted again, a sum may differ from its earlier value.

use super::{AggCall, Facts, Family, NullValue, ValueOf, aggregate, opaque};
use crate::error::Result;
use crate::expr::FuncSig;
use crate::types::{Datum, Type};

pub(super) struct Statistics;

/// Whether the aggregate reads pairs of values. In PostgreSQL, every aggregate whose name begins with one of
/// these prefixes reads pairs.
fn of_pairs(name: &str) -> bool {
    ["corr", "covar_", "regr_"].iter().any(|p| name.starts_with(p))
}

impl Family for Statistics {
    fn names(&self) -> &'static [&'static str] {
        &[
            "stddev",
            "stddev_pop",
            "stddev_samp",
            "variance",
            "var_pop",
            "var_samp",
            "corr",
            "covar_pop",
            "covar_samp",
            "regr_avgx",
            "regr_avgy",
            "regr_count",
            "regr_intercept",
            "regr_r2",
            "regr_slope",
            "regr_sxx",
            "regr_sxy",
            "regr_syy",
        ]
    }

    fn facts(&self, _name: &str) -> Facts {
        Facts { null: NullValue::Unknown, ..Facts::of(ValueOf::Function) }
    }

    fn signature(&self, name: &str, args: &[Type]) -> Option<FuncSig> {
        match args {
            [arg] if !of_pairs(name) && arg.is_number() => {
                let float = matches!(arg, Type::Float4 | Type::Float8);
                let ret = if float { Type::Float8 } else { Type::Numeric(None) };
                Some(aggregate(name, vec![arg.base()], ret, true))
            }
            [y, x] if of_pairs(name) && y.is_number() && x.is_number() => {
                let ret = if name == "regr_count" { Type::Int8 } else { Type::Float8 };
                Some(aggregate(name, vec![Type::Float8, Type::Float8], ret, true))
            }
            _ => None,
        }
    }

    fn of_nothing(&self, call: &AggCall) -> Option<Datum> {
        Some(if &*call.sig.name == "regr_count" { Datum::Int(0) } else { Datum::Null })
    }

    fn is_opaque(&self, _call: &AggCall) -> bool {
        true
    }

    fn value(&self, call: &AggCall, rows: &[Vec<Datum>]) -> Result<Datum> {
        Ok(opaque(call, rows))
    }
}
