//! Functions on json and jsonb.

use super::values::json as v;
use super::{LAX, NULLABLE, OPERATOR, RAISES, Row, STABLE, f, opaque};

const GET: u16 = OPERATOR | NULLABLE;

pub(super) const ROWS: &[Row] = &[
    f("->", "jsonb, text -> jsonb", GET, v::get),
    f("->", "jsonb, int4 -> jsonb", GET, v::get),
    f("->>", "jsonb, text -> text", GET, v::get_text),
    f("->>", "jsonb, int4 -> text", GET, v::get_text),
    f("#>", "jsonb, text[] -> jsonb", GET, v::path),
    f("#>>", "jsonb, text[] -> text", GET, v::path_text),
    // Reading a json value raises an error for an escape that text cannot hold. A json value may contain such
    // an escape; a jsonb value may not.
    opaque("->", "json, text -> json", GET | RAISES),
    opaque("->", "json, int4 -> json", GET | RAISES),
    opaque("->>", "json, text -> text", GET | RAISES),
    opaque("->>", "json, int4 -> text", GET | RAISES),
    opaque("#>", "json, text[] -> json", GET | RAISES),
    opaque("#>>", "json, text[] -> text", GET | RAISES),
    f("@>", "jsonb, jsonb -> bool", OPERATOR, v::is_superset),
    f("<@", "jsonb, jsonb -> bool", OPERATOR, v::is_subset),
    f("?", "jsonb, text -> bool", OPERATOR, v::exists),
    f("?|", "jsonb, text[] -> bool", OPERATOR, v::exists_any),
    f("?&", "jsonb, text[] -> bool", OPERATOR, v::exists_all),
    f("||", "jsonb, jsonb -> jsonb", OPERATOR, v::concatenate),
    f("-", "jsonb, text -> jsonb", OPERATOR | RAISES, v::without),
    f("-", "jsonb, int4 -> jsonb", OPERATOR | RAISES, v::without),
    opaque("-", "jsonb, text[] -> jsonb", OPERATOR | RAISES),
    opaque("#-", "jsonb, text[] -> jsonb", OPERATOR | RAISES),
    f("jsonb_array_length", "jsonb -> int4", RAISES, v::array_length),
    f("jsonb_typeof", "jsonb -> text", 0, v::kind),
    opaque("json_typeof", "json -> text", 0),
    opaque("json_array_length", "json -> int4", RAISES),
    f("jsonb_build_object", "variadic any -> jsonb", LAX | STABLE | RAISES, v::build_object),
    f("jsonb_build_object", "-> jsonb", LAX | STABLE, v::build_object),
    f("jsonb_build_array", "variadic any -> jsonb", LAX | STABLE | RAISES, v::build_array),
    f("jsonb_build_array", "-> jsonb", LAX | STABLE, v::build_array),
    opaque("json_build_object", "variadic any -> json", LAX | STABLE | RAISES),
    opaque("json_build_array", "variadic any -> json", LAX | STABLE | RAISES),
    f("to_jsonb", "any -> jsonb", STABLE | RAISES, v::to_jsonb),
    opaque("to_json", "any -> json", STABLE | RAISES),
    opaque("row_to_json", "any -> json", STABLE),
    opaque("jsonb_set", "jsonb, text[], jsonb -> jsonb", RAISES),
    opaque("jsonb_set", "jsonb, text[], jsonb, bool -> jsonb", RAISES),
    f("jsonb_strip_nulls", "jsonb -> jsonb", 0, v::strip_nulls),
    opaque("jsonb_pretty", "jsonb -> text", 0),
    f("jsonb_extract_path", "jsonb, variadic text -> jsonb", NULLABLE, v::extract_path),
    f("jsonb_extract_path_text", "jsonb, variadic text -> text", NULLABLE, v::extract_path_text),
];
