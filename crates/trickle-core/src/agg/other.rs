//! Every aggregate that is kept by recomputing its touched groups, user-defined ones included.

use super::{AggCall, Family, aggregate};
use crate::error::Result;
use crate::expr::FuncSig;
use crate::types::{Datum, Type};

pub(super) struct Other;

impl Family for Other {
    fn signature(&self, name: &str, args: &[Type]) -> Option<FuncSig> {
        let ret = match (name, args) {
            ("array_agg", [arg]) => arg.clone().array(),
            ("string_agg", [Type::Text | Type::Varchar(_) | Type::Unknown, _]) => Type::Text,
            _ => return None,
        };
        Some(aggregate(name, args.to_vec(), ret, false))
    }

    fn value(&self, call: &AggCall, rows: &[Vec<Datum>]) -> Result<Datum> {
        crate::eval::aggregates::other(call, rows)
    }
}
