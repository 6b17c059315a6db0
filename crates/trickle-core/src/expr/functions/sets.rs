//! Functions that return sets of rows. The value of a call is the array of its rows, in order. If the
//! function has several columns, each row is a record. A value of NULL is the empty set.

use super::values::sets as v;
use super::{LAX, NULLABLE, RAISES, Row, SET, STABLE, f, opaque};

/// The flags of a function that returns a set and can raise an error.
const R: u16 = SET | RAISES;

pub(super) const ROWS: &[Row] = &[
    f("unnest", "anyarray -> anyelement", SET | NULLABLE, v::unnest),
    f("generate_series", "int4, int4 -> int4", R, v::integers),
    f("generate_series", "int4, int4, int4 -> int4", R, v::integers),
    f("generate_series", "int8, int8 -> int8", R, v::integers),
    f("generate_series", "int8, int8, int8 -> int8", R, v::integers),
    f("generate_series", "numeric, numeric -> numeric", R, v::numerics),
    f("generate_series", "numeric, numeric, numeric -> numeric", R, v::numerics),
    f("generate_series", "timestamp, timestamp, interval -> timestamp", R, v::moments),
    f("generate_series", "timestamptz, timestamptz, interval -> timestamptz", R | STABLE, v::moments),
    f("generate_subscripts", "anyarray, int4 -> int4", SET, v::subscripts),
    f("generate_subscripts", "anyarray, int4, bool -> int4", SET, v::subscripts),
    f("string_to_table", "text, text -> text", SET | LAX | NULLABLE, v::pieces),
    f("string_to_table", "text, text, text -> text", SET | LAX | NULLABLE, v::pieces),
    opaque("regexp_matches", "text, text -> text[]", R),
    opaque("regexp_matches", "text, text, text -> text[]", R),
    opaque("regexp_split_to_table", "text, text -> text", R),
    opaque("regexp_split_to_table", "text, text, text -> text", R),
    f("jsonb_array_elements", "jsonb -> (value jsonb)", R, v::elements),
    f("jsonb_array_elements_text", "jsonb -> (value text)", R | NULLABLE, v::elements_text),
    f("jsonb_each", "jsonb -> (key text, value jsonb)", R, v::members),
    f("jsonb_each_text", "jsonb -> (key text, value text)", R | NULLABLE, v::members_text),
    f("jsonb_object_keys", "jsonb -> text", R, v::keys),
    opaque("jsonb_path_query", "jsonb, jsonpath -> jsonb", R),
    opaque("jsonb_path_query", "jsonb, jsonpath, jsonb -> jsonb", R),
    opaque("jsonb_path_query", "jsonb, jsonpath, jsonb, bool -> jsonb", R),
    opaque("json_array_elements", "json -> (value json)", R),
    opaque("json_array_elements_text", "json -> (value text)", R | NULLABLE),
    opaque("json_each", "json -> (key text, value json)", R),
    opaque("json_each_text", "json -> (key text, value text)", R | NULLABLE),
    opaque("json_object_keys", "json -> text", R),
    // The columns of these functions come from the column definition list after the call.
    opaque("jsonb_to_recordset", "jsonb -> record", R | NULLABLE),
    opaque("json_to_recordset", "json -> record", R | NULLABLE),
];
