//! Functions on arrays.

use super::values::array as v;
use super::{COMPARES, LAX, NULLABLE, OPERATOR, RAISES, Row, STABLE, f, opaque};

pub(super) const ROWS: &[Row] = &[
    f("||", "anyarray, anyarray -> anyarray", OPERATOR | LAX | NULLABLE | RAISES, v::concatenate),
    f("||", "anyarray, anyelement -> anyarray", OPERATOR | LAX | RAISES, v::append),
    f("||", "anyelement, anyarray -> anyarray", OPERATOR | LAX | RAISES, v::prepend),
    f("@>", "anyarray, anyarray -> bool", COMPARES | OPERATOR, v::is_superset),
    f("<@", "anyarray, anyarray -> bool", COMPARES | OPERATOR, v::is_subset),
    f("&&", "anyarray, anyarray -> bool", COMPARES | OPERATOR, v::overlaps),
    f("array_length", "anyarray, int4 -> int4", NULLABLE, v::length),
    f("array_lower", "anyarray, int4 -> int4", NULLABLE, v::lower),
    f("array_upper", "anyarray, int4 -> int4", NULLABLE, v::length),
    f("array_ndims", "anyarray -> int4", NULLABLE, v::dimensions),
    f("cardinality", "anyarray -> int4", 0, v::cardinality),
    f("array_append", "anyarray, anyelement -> anyarray", LAX | RAISES, v::append),
    f("array_prepend", "anyelement, anyarray -> anyarray", LAX | RAISES, v::prepend),
    f("array_cat", "anyarray, anyarray -> anyarray", LAX | NULLABLE | RAISES, v::concatenate),
    f("array_remove", "anyarray, anyelement -> anyarray", COMPARES | LAX | NULLABLE | RAISES, v::remove),
    opaque("array_replace", "anyarray, anyelement, anyelement -> anyarray", LAX | NULLABLE),
    f("array_position", "anyarray, anyelement -> int4", COMPARES | LAX | NULLABLE | RAISES, v::position),
    f("array_positions", "anyarray, anyelement -> int4[]", COMPARES | LAX | NULLABLE | RAISES, v::positions),
    opaque("array_to_string", "anyarray, text -> text", STABLE),
    opaque("array_to_string", "anyarray, text, text -> text", LAX | NULLABLE | STABLE),
    f("string_to_array", "text, text -> text[]", LAX | NULLABLE, v::split),
    f("string_to_array", "text, text, text -> text[]", LAX | NULLABLE, v::split),
];
