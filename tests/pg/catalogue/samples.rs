//! Values of every type of PostgreSQL that a column can have, and the table that holds them.

use std::fmt::Write;

/// A type and some of its literals. NULL is added to the literals of each type.
struct Sample(&'static str, &'static [&'static str]);

/// Ordinary types, enums and ranges. Values that are equal and written differently are neighbours (1.0 and
/// 1.00, two intervals of a day). Values at which functions change their behaviour (0, negative, empty) are
/// neighbours, too.
const SAMPLES: &[Sample] = &[
    Sample("bool", &["true", "false"]),
    Sample("bytea", &[r"\x", r"\x0102ff", r"\x616263", r"\x61"]),
    Sample("\"char\"", &["a", "b", "", "z"]),
    Sample("name", &["a", "Ab", "pg_class", ""]),
    Sample("int8", &["0", "1", "-3", "7", "20"]),
    Sample("int2", &["0", "1", "-3", "7", "2"]),
    Sample("int4", &["0", "1", "-3", "7", "2"]),
    Sample("text", &["", "a", "Abc abc", "2020-01-02", "b", "YYYY", "a,b"]),
    Sample("bpchar", &["a", "a  ", "Bc", ""]),
    Sample("varchar", &["a", "b ", "Cd", ""]),
    Sample("oid", &["0", "23", "25", "1259", "16"]),
    Sample("regclass", &["pg_class", "pg_type"]),
    Sample("regtype", &["integer", "text"]),
    Sample("regproc", &["now", "pi"]),
    Sample("regprocedure", &["abs(integer)", "lower(text)"]),
    Sample("regoper", &["pg_catalog.||/", "pg_catalog.|/"]),
    Sample("regoperator", &["+(integer,integer)", "||(text,text)"]),
    Sample("regnamespace", &["pg_catalog", "public"]),
    Sample("regrole", &["postgres", "pg_monitor"]),
    Sample("regcollation", &["\"C\"", "\"POSIX\""]),
    Sample("regconfig", &["simple", "english"]),
    Sample("regdictionary", &["simple", "english_stem"]),
    Sample(
        "json",
        &["{\"a\": 1, \"b\": [1, 2.0]}", "[1, \"x\", null]", "{}", "3", "[{\"a\": 1}, {\"a\": 2}]"],
    ),
    Sample(
        "jsonb",
        &["{\"a\": 1, \"b\": [1, 2.0]}", "[1, \"x\", null]", "{}", "3", "[{\"a\": 1}, {\"a\": 2}]"],
    ),
    Sample("jsonpath", &["$.a", "$[*]", "$.b[*] ? (@ > 1)"]),
    Sample("xml", &["<a>1</a>", "<b c=\"d\"/>"]),
    Sample("point", &["(0,0)", "(1,2)", "(-1,0.5)"]),
    Sample("lseg", &["[(0,0),(1,1)]", "[(0,1),(1,0)]", "[(2,2),(3,2)]"]),
    Sample("path", &["[(0,0),(1,1),(2,0)]", "((0,0),(1,1),(2,0))"]),
    Sample("box", &["(1,1),(0,0)", "(3,3),(0.5,0.5)"]),
    Sample("polygon", &["((0,0),(1,1),(2,0))", "((0,0),(0,3),(3,3),(3,0))"]),
    Sample("line", &["{1,-1,0}", "{0,1,2}"]),
    Sample("circle", &["<(0,0),1>", "<(1,2),2.5>"]),
    Sample("float4", &["0", "1.5", "-2", "0.25"]),
    Sample("float8", &["0", "1.5", "-2", "0.25", "8"]),
    Sample("numeric", &["0", "1.0", "1.00", "-2.5", "7", "NaN"]),
    Sample("money", &["1.00", "-2.50", "0"]),
    Sample("macaddr", &["08:00:2b:01:02:03", "00:00:00:00:00:01"]),
    Sample("macaddr8", &["08:00:2b:01:02:03:04:05", "00:00:00:00:00:00:00:01"]),
    Sample("inet", &["10.1.2.3", "10.1.2.3/8", "::1", "192.168.0.1/24"]),
    Sample("cidr", &["10.0.0.0/8", "192.168.0.0/24", "::/0"]),
    Sample("aclitem", &["postgres=r/postgres", "=w/postgres"]),
    Sample("date", &["2020-02-29", "2000-01-01", "infinity", "1999-12-31"]),
    Sample("time", &["00:00", "12:30:15.5", "23:59:59"]),
    Sample("timetz", &["00:00+00", "12:30:15.5-03", "15:30:15.5+00"]),
    Sample("timestamp", &["2020-02-29 12:30", "2000-01-01 00:00", "1999-12-31 23:59:59.5"]),
    Sample("timestamptz", &["2020-02-29 12:30+00", "2000-01-01 00:00+02", "1999-12-31 23:59:59.5-08"]),
    Sample("interval", &["1 day", "24 hours", "1 mon -2 days 03:04:05.5", "-1 year", "0"]),
    Sample("bit", &["1", "0"]),
    Sample("varbit", &["101", "", "0011", "1"]),
    Sample("uuid", &["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "019535d9-3df7-79fb-b466-fa907fa17f9e"]),
    Sample("tsvector", &["a:1A b:2 cat:3B", "b", "x:5 y:6C"]),
    Sample("tsquery", &["a & b", "!x", "cat:A | y"]),
    Sample("pg_lsn", &["0/0", "16/B374D848"]),
    Sample("xid", &["0", "7"]),
    Sample("xid8", &["0", "7", "9"]),
    Sample("cid", &["0", "1"]),
    Sample("tid", &["(0,1)", "(2,3)"]),
    Sample("pg_snapshot", &["10:20:10,14", "5:5:"]),
    Sample("txid_snapshot", &["10:20:10,14", "5:5:"]),
    Sample("int2vector", &["1 2", "3"]),
    Sample("oidvector", &["23 25", "16"]),
    Sample("refcursor", &["one", "two"]),
    Sample("mood", &["sad", "ok", "glad"]),
    Sample("int4range", &["[1,5)", "empty", "[3,)"]),
    Sample("int8range", &["[1,5)", "(,2]", "[3,8)"]),
    Sample("numrange", &["[1.0,5)", "[1.00,2.5]", "(,)"]),
    Sample("daterange", &["[2020-01-01,2020-02-01)", "[2020-01-15,)"]),
    Sample("tsrange", &["[2020-01-01 00:00,2020-02-01 00:00)", "empty"]),
    Sample("tstzrange", &["[2020-01-01 00:00+00,2020-02-01 00:00+00)", "(,2020-01-15 00:00+00]"]),
    Sample("int4multirange", &["{[1,3),[5,7)}", "{}", "{[2,6)}"]),
    Sample("nummultirange", &["{[1.0,3)}", "{[2,2.5],[5,)}"]),
    Sample("datemultirange", &["{[2020-01-01,2020-02-01)}", "{}"]),
    Sample("int4[]", &["{1,2}", "{}", "{3,NULL,1}", "{{1,2},{3,4}}"]),
    Sample("int8[]", &["{1,2}", "{}", "{7}"]),
    Sample("int2[]", &["{1,2}", "{3}"]),
    Sample("text[]", &["{a,b}", "{}", "{NULL,Abc}", "{b}"]),
    Sample("varchar[]", &["{a,b}", "{c}"]),
    Sample("name[]", &["{a,b}", "{c}"]),
    Sample("bool[]", &["{t,f}", "{}"]),
    Sample("float4[]", &["{0.25,0.5}", "{1}"]),
    Sample("float8[]", &["{0.25,0.5}", "{0.5}", "{0,1}"]),
    Sample("numeric[]", &["{1.0,2}", "{1.00}"]),
    Sample("date[]", &["{2020-01-01,2020-02-29}", "{}"]),
    Sample("timestamptz[]", &["{2020-01-01 00:00+00}", "{}"]),
    Sample("interval[]", &["{1 day,24 hours}", "{}"]),
    Sample("uuid[]", &["{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}", "{}"]),
    Sample("json[]", &["{1,\"{}\"}", "{}"]),
    Sample("jsonb[]", &["{1,\"{}\"}", "{}"]),
    Sample("\"char\"[]", &["{a,b}", "{}"]),
    Sample("oid[]", &["{23,25}", "{}"]),
    Sample("regtype[]", &["{integer}", "{}"]),
    Sample("aclitem[]", &["{postgres=r/postgres}", "{}"]),
    Sample("int4range[]", &["{\"[1,5)\"}", "{}"]),
    Sample("int8range[]", &["{\"[1,5)\"}", "{}"]),
    Sample("numrange[]", &["{\"[1,5)\"}", "{}"]),
    Sample("daterange[]", &["{\"[2020-01-01,2020-02-01)\"}", "{}"]),
    Sample("tsrange[]", &["{empty}", "{}"]),
    Sample("tstzrange[]", &["{empty}", "{}"]),
];

/// The type that stands for each polymorphic type of arguments (PostgreSQL manual, 36.2.5).
const POLYMORPHIC: &[(&str, &str)] = &[
    ("anyelement", "int4"),
    ("anynonarray", "int4"),
    ("anyarray", "int4[]"),
    ("anyenum", "mood"),
    ("anyrange", "int4range"),
    ("anymultirange", "int4multirange"),
    ("anycompatible", "int4"),
    ("anycompatiblenonarray", "int4"),
    ("anycompatiblearray", "int4[]"),
    ("anycompatiblerange", "int4range"),
    ("anycompatiblemultirange", "int4multirange"),
    ("\"any\"", "text"),
];

/// Returns the type of the values that are given for an argument of type `ty`. The type is written as
/// `format_type` writes it.
pub(super) fn given(ty: &str) -> Option<&'static str> {
    let spelled = POLYMORPHIC.iter().find(|(any, _)| *any == ty).map_or(ty, |(_, for_it)| for_it);
    SAMPLES.iter().map(|s| s.0).find(|name| *name == spelled)
}

/// Returns all types of the table.
pub(super) fn types() -> impl Iterator<Item = &'static str> {
    SAMPLES.iter().map(|s| s.0)
}

/// Returns the literals of a type, with casts.
pub(super) fn literals(ty: &str) -> Vec<String> {
    let values = SAMPLES.iter().find(|s| s.0 == ty).map_or(&[][..], |s| s.1);
    values.iter().map(|v| literal(v, ty)).collect()
}

fn literal(value: &str, ty: &str) -> String {
    let ty = if ty == "bit" { "bit(1)" } else { ty };
    format!("'{}'::{ty}", value.replace('\'', "''"))
}

/// Returns the name of the column of a type.
pub(super) fn column(ty: &str) -> String {
    let name = ty.replace("[]", "_list").replace('"', "").replace(' ', "_");
    format!("a_{name}")
}

/// The number of rows of each state, and the number of states.
const ROWS: usize = 8;
const STATES: usize = 3;

/// Returns the statements that make two tables. Table `every` has the rows of all states, and table `c` has
/// the rows of the first state. From row to row, the value of a column varies over its samples and NULL. A
/// server that was built without libxml has no values of type xml.
pub(super) fn tables(has_xml: bool) -> String {
    let mut text = String::from("CREATE TYPE mood AS ENUM ('sad', 'ok', 'glad');\n");
    let columns: Vec<String> = types().map(|ty| format!("{} {ty}", column(ty))).collect();
    let _ = writeln!(text, "CREATE TABLE every (state int, id int, k int, {});", columns.join(", "));
    for state in 0..STATES {
        for row in 0..ROWS {
            let of = |(nth, s): (usize, &Sample)| match s.0 == "xml" && !has_xml {
                true => "NULL".to_owned(),
                false => value(s, nth, state, row),
            };
            let values: Vec<String> = SAMPLES.iter().enumerate().map(of).collect();
            let _ = writeln!(
                text,
                "INSERT INTO every VALUES ({state}, {row}, {}, {});",
                row % 3,
                values.join(", ")
            );
        }
    }
    text.push_str(
        "CREATE TABLE c (LIKE every, PRIMARY KEY (id)); INSERT INTO c SELECT * FROM every WHERE state = 0;",
    );
    text
}

fn value(sample: &Sample, nth: usize, state: usize, row: usize) -> String {
    let at = nth * 7 + state * 5 + row * 3 + row * row;
    match at % 9 {
        0 => "NULL".to_owned(),
        _ => literal(sample.1[at / 2 % sample.1.len()], sample.0),
    }
}

/// Returns the statements that change table `c`. The windows follow each other: rows change in part, rows are
/// inserted and deleted, and all rows change.
pub(super) fn windows() -> [String; 3] {
    let names: Vec<String> = types().map(column).collect();
    let set: Vec<String> = names.iter().map(|n| format!("{n} = e.{n}")).collect();
    let to = |state: usize, filter: &str| {
        format!(
            "UPDATE c SET state = {state}, {} FROM every e WHERE e.state = {state} AND e.id = c.id AND {filter}",
            set.join(", ")
        )
    };
    [
        to(1, "c.id % 2 = 0"),
        "DELETE FROM c WHERE id < 3; INSERT INTO c SELECT * FROM every WHERE state = 2 AND id < 2".to_owned(),
        to(2, "true"),
    ]
}
