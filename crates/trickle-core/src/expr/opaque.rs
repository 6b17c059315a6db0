//! Values for functions that the evaluator does not know. The value is a seeded hash of the function's name
//! and arguments, as a value of the result type. Equal arguments give equal results. A law about plans may
//! rely on no other property of the value.

use super::{FuncKind, FuncSig};
use crate::types::{Datum, Interval, Numeric, Type};
use num_bigint::BigInt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use xxhash_rust::xxh64::Xxh64;

const SEED: u64 = 0x7472_6963_6b6c_6521;

/// Returns the value of an unknown function. The result is one of a few values, so that distinct arguments
/// often give equal results.
pub(crate) fn value(sig: &FuncSig, args: &[Datum]) -> Datum {
    let mut h = Xxh64::new(SEED);
    sig.schema.hash(&mut h);
    sig.name.hash(&mut h);
    if !sig.form.is_empty() {
        sig.form.hash(&mut h);
    }
    args.hash(&mut h);
    let hash = h.finish();
    if sig.kind == FuncKind::SetReturning {
        let row = |i: u64| {
            let hash = hash / 3 + i;
            let null = !sig.never_null && hash.is_multiple_of(8);
            if null { Datum::Null } else { of_type(&sig.ret, hash / 8) }
        };
        return Datum::Array((0..hash % 3).map(row).collect());
    }
    if !sig.never_null && hash.is_multiple_of(8) { Datum::Null } else { of_type(&sig.ret, hash / 8) }
}

/// Returns a value of `ty` that is determined by `hash`.
fn of_type(ty: &Type, hash: u64) -> Datum {
    let small = i64::try_from(hash % 7).unwrap_or(0) - 3;
    let tiny = i32::try_from(small).unwrap_or(0);
    match ty {
        Type::Bool => Datum::Bool(hash.is_multiple_of(2)),
        Type::Int2 | Type::Int4 | Type::Int8 => Datum::Int(small),
        Type::Numeric(mods) => {
            let scale =
                mods.map_or(u16::try_from(hash / 7 % 3).unwrap_or(0), |(_, s)| u16::try_from(s).unwrap_or(0));
            Datum::Numeric(Arc::new(Numeric::Finite { unscaled: BigInt::from(small), scale }))
        }
        Type::Float4 | Type::Float8 => Datum::Float(f64::from(tiny) / 2.0),
        Type::Bpchar(n) => {
            let width = usize::try_from(n.unwrap_or(1)).unwrap_or(1);
            Datum::text(format!("{:<width$}", hash % 7))
        }
        Type::Varchar(Some(_)) => Datum::text((hash % 7).to_string()),
        Type::Bytea => Datum::Bytes(Arc::from((hash % 7).to_be_bytes())),
        Type::Date => Datum::Date(tiny),
        Type::Time => Datum::Time((small + 3) * crate::types::calendar::HOUR),
        Type::Timestamp | Type::Timestamptz => Datum::Timestamp(small * crate::types::calendar::HOUR),
        Type::Interval => Datum::Interval(Interval { months: 0, days: tiny, micros: 0 }),
        Type::Uuid => Datum::Uuid(u128::from(hash % 7)),
        Type::Jsonb => Datum::Json(Arc::new(serde_json::Value::from(small))),
        Type::Array(element) => {
            Datum::Array((0..hash / 7 % 3).map(|i| of_type(element, hash.wrapping_add(i))).collect())
        }
        Type::Record(fields) => Datum::Record(fields.iter().map(|f| of_type(f, hash)).collect()),
        Type::Text | Type::Varchar(None) | Type::Json | Type::Unknown | Type::Other(_) => {
            Datum::text(format!("{}", hash % 7))
        }
    }
}
