use super::{Entry, FAMILIES, resolve_function, resolve_operator};
use crate::types::Type;

fn types(names: &str) -> Vec<Type> {
    names.split(", ").filter(|n| !n.is_empty()).map(|n| Type::parse(n).expect(n)).collect()
}

fn show(sig: Option<std::sync::Arc<crate::expr::FuncSig>>) -> String {
    sig.map_or_else(
        || "none".to_owned(),
        |s| {
            let args: Vec<String> = s.args.iter().map(ToString::to_string).collect();
            format!("{} -> {}", args.join(", "), s.ret)
        },
    )
}

#[test]
fn every_row_parses() {
    for row in FAMILIES.iter().copied().flatten() {
        assert!(Entry::parse(row).is_some(), "{} {}", row.name, row.types);
    }
}

/// The expected types come from PostgreSQL's `pg_typeof` and EXPLAIN VERBOSE.
#[test]
fn operators_resolve_as_in_postgres() {
    for (op, args, expected) in [
        ("+", "int2, int4", "smallint, integer -> integer"),
        ("+", "int4, unknown", "integer, integer -> integer"),
        ("+", "int4, numeric(10,2)", "numeric, numeric -> numeric"),
        ("+", "int8, float4", "double precision, real -> double precision"),
        ("/", "numeric, float8", "double precision, double precision -> double precision"),
        ("%", "int2, int8", "bigint, bigint -> bigint"),
        ("^", "int4, int4", "double precision, double precision -> double precision"),
        ("-", "int4", "integer -> integer"),
        ("-", "date, unknown", "date, date -> integer"),
        ("-", "date, date", "date, date -> integer"),
        ("+", "date, interval", "date, interval -> timestamp without time zone"),
        ("-", "timestamptz, date", "timestamp with time zone, timestamp with time zone -> interval"),
        ("*", "interval, int4", "interval, double precision -> interval"),
        ("*", "int4, interval", "double precision, interval -> interval"),
        ("||", "text, unknown", "text, text -> text"),
        ("||", "varchar(3), int4", "text, text -> text"),
        ("||", "int4[], int4", "integer[], integer -> integer[]"),
        ("||", "int4[], int8[]", "bigint[], bigint[] -> bigint[]"),
        ("||", "int4[], unknown", "integer[], integer[] -> integer[]"),
        ("||", "jsonb, unknown", "jsonb, jsonb -> jsonb"),
        ("->", "jsonb, unknown", "jsonb, text -> jsonb"),
        ("->>", "jsonb, int4", "jsonb, integer -> text"),
        ("@>", "jsonb, unknown", "jsonb, jsonb -> boolean"),
        ("~~", "varchar(3), unknown", "text, text -> boolean"),
        ("=", "int4, int8", "integer, bigint -> boolean"),
        ("=", "int4, numeric", "numeric, numeric -> boolean"),
        ("<", "numeric, float8", "double precision, double precision -> boolean"),
        ("=", "varchar(3), text", "character varying(3), text -> boolean"),
        ("=", "character(3), text", "text, text -> boolean"),
        ("=", "date, timestamp", "date, timestamp without time zone -> boolean"),
        ("=", "int4, text", "none"),
        ("=", "json, json", "none"),
        ("+", "text, int4", "none"),
    ] {
        assert_eq!(show(resolve_operator(op, &types(args))), expected, "{op} ({args})");
    }
}

/// A collation does not make another type: an untyped literal with a collated text is a text, not an array.
#[test]
fn collations_do_not_decide_which_function_is_meant() {
    let collated = Type::Text.collated("\"C\"", true);
    for other in [Type::Unknown, Type::Text, collated.clone()] {
        let found = resolve_operator("||", &[collated.clone(), other]);
        assert_eq!(show(found), "text, text -> text");
    }
    assert_eq!(show(resolve_function("lower", std::slice::from_ref(&collated))), "text -> text");
    let equal = resolve_operator("=", &[Type::Unknown, collated.clone()]);
    assert_eq!(show(equal), "text COLLATE \"C\", text COLLATE \"C\" -> boolean");
    assert!(resolve_operator("=", &[collated, Type::Text.collated("other", true)]).is_none());
}

#[test]
fn functions_resolve_as_in_postgres() {
    for (name, args, expected) in [
        ("abs", "int4", "integer -> integer"),
        ("abs", "unknown", "double precision -> double precision"),
        ("round", "int4", "double precision -> double precision"),
        ("round", "numeric(5,2), int4", "numeric, integer -> numeric"),
        ("round", "float8, int4", "none"),
        ("sqrt", "int4", "double precision -> double precision"),
        ("mod", "int4, int8", "bigint, bigint -> bigint"),
        ("length", "varchar(3)", "text -> integer"),
        ("length", "character(3)", "bpchar -> integer"),
        ("length", "unknown", "text -> integer"),
        ("lower", "character(3)", "text -> text"),
        ("substring", "text, int4", "text, integer -> text"),
        ("substring", "text, unknown", "text, text -> text"),
        ("date_trunc", "unknown, date", "text, timestamp with time zone -> timestamp with time zone"),
        (
            "date_trunc",
            "unknown, timestamp",
            "text, timestamp without time zone -> timestamp without time zone",
        ),
        ("extract", "unknown, date", "text, date -> numeric"),
        ("concat", "int4, unknown, text", "integer, text, text -> text"),
        ("array_append", "int4[], unknown", "integer[], integer -> integer[]"),
        ("array_append", "int4[], int8", "bigint[], bigint -> bigint[]"),
        ("unnest", "text[]", "text[] -> text"),
        ("generate_series", "int4, int8", "bigint, bigint -> bigint"),
        ("now", "", " -> timestamp with time zone"),
        ("no_such", "", "none"),
    ] {
        assert_eq!(show(resolve_function(name, &types(args))), expected, "{name}({args})");
    }
}
