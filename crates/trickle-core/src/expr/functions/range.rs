//! Functions on ranges and multiranges of the built-in types.

use super::{LAX, NULLABLE, OPERATOR, RAISES, Row, opaque};

/// Makes the rows of the functions on a range type, its multirange type and its element type.
macro_rules! ranges {
    ($range:literal, $multi:literal, $element:literal) => {
        &[
            opaque("&&", concat!($range, ", ", $range, " -> bool"), OPERATOR),
            opaque("&&", concat!($multi, ", ", $multi, " -> bool"), OPERATOR),
            opaque("&&", concat!($range, ", ", $multi, " -> bool"), OPERATOR),
            opaque("&&", concat!($multi, ", ", $range, " -> bool"), OPERATOR),
            opaque("@>", concat!($range, ", ", $range, " -> bool"), OPERATOR),
            opaque("@>", concat!($range, ", ", $element, " -> bool"), OPERATOR),
            opaque("@>", concat!($range, ", ", $multi, " -> bool"), OPERATOR),
            opaque("@>", concat!($multi, ", ", $multi, " -> bool"), OPERATOR),
            opaque("@>", concat!($multi, ", ", $range, " -> bool"), OPERATOR),
            opaque("@>", concat!($multi, ", ", $element, " -> bool"), OPERATOR),
            opaque("<@", concat!($range, ", ", $range, " -> bool"), OPERATOR),
            opaque("<@", concat!($element, ", ", $range, " -> bool"), OPERATOR),
            opaque("<@", concat!($range, ", ", $multi, " -> bool"), OPERATOR),
            opaque("<@", concat!($multi, ", ", $multi, " -> bool"), OPERATOR),
            opaque("<@", concat!($multi, ", ", $range, " -> bool"), OPERATOR),
            opaque("<@", concat!($element, ", ", $multi, " -> bool"), OPERATOR),
            opaque("<<", concat!($range, ", ", $range, " -> bool"), OPERATOR),
            opaque("<<", concat!($multi, ", ", $multi, " -> bool"), OPERATOR),
            opaque(">>", concat!($range, ", ", $range, " -> bool"), OPERATOR),
            opaque(">>", concat!($multi, ", ", $multi, " -> bool"), OPERATOR),
            opaque("&<", concat!($range, ", ", $range, " -> bool"), OPERATOR),
            opaque("&>", concat!($range, ", ", $range, " -> bool"), OPERATOR),
            opaque("-|-", concat!($range, ", ", $range, " -> bool"), OPERATOR),
            opaque("-|-", concat!($multi, ", ", $multi, " -> bool"), OPERATOR),
            opaque("+", concat!($range, ", ", $range, " -> ", $range), OPERATOR | RAISES),
            opaque("*", concat!($range, ", ", $range, " -> ", $range), OPERATOR),
            opaque("-", concat!($range, ", ", $range, " -> ", $range), OPERATOR | RAISES),
            opaque("+", concat!($multi, ", ", $multi, " -> ", $multi), OPERATOR),
            opaque("*", concat!($multi, ", ", $multi, " -> ", $multi), OPERATOR),
            opaque("-", concat!($multi, ", ", $multi, " -> ", $multi), OPERATOR),
            opaque("lower", concat!($range, " -> ", $element), NULLABLE),
            opaque("upper", concat!($range, " -> ", $element), NULLABLE),
            opaque("lower", concat!($multi, " -> ", $element), NULLABLE),
            opaque("upper", concat!($multi, " -> ", $element), NULLABLE),
            opaque("isempty", concat!($range, " -> bool"), 0),
            opaque("isempty", concat!($multi, " -> bool"), 0),
            opaque("lower_inc", concat!($range, " -> bool"), 0),
            opaque("upper_inc", concat!($range, " -> bool"), 0),
            opaque("lower_inf", concat!($range, " -> bool"), 0),
            opaque("upper_inf", concat!($range, " -> bool"), 0),
            opaque("range_merge", concat!($range, ", ", $range, " -> ", $range), 0),
            opaque("range_merge", concat!($multi, " -> ", $range), 0),
            opaque("multirange", concat!($range, " -> ", $multi), 0),
            opaque($range, concat!($element, ", ", $element, " -> ", $range), LAX | RAISES),
            opaque($range, concat!($element, ", ", $element, ", text -> ", $range), LAX | RAISES),
            opaque($multi, concat!("-> ", $multi), 0),
            opaque($multi, concat!("variadic ", $range, " -> ", $multi), 0),
        ]
    };
}

pub(super) const INT4: &[Row] = ranges!("int4range", "int4multirange", "int4");
pub(super) const INT8: &[Row] = ranges!("int8range", "int8multirange", "int8");
pub(super) const NUM: &[Row] = ranges!("numrange", "nummultirange", "numeric");
pub(super) const DATE: &[Row] = ranges!("daterange", "datemultirange", "date");
pub(super) const TS: &[Row] = ranges!("tsrange", "tsmultirange", "timestamp");
pub(super) const TSTZ: &[Row] = ranges!("tstzrange", "tstzmultirange", "timestamptz");
