//! The functions, operators, casts, aggregates and types of PostgreSQL's own that a view may use. Each of
//! them has a query.

use super::samples::{column, given, literals, types};
use trickle_client::Session;

/// A query over table `c`, with the name of its subject.
#[derive(Clone, Debug)]
pub(super) struct Subject {
    /// The kind and the signature: `function lower(text)`.
    pub(super) name: String,
    /// Queries of the same subject with other arguments. The first query that raises no error is used.
    pub(super) queries: Vec<String>,
}

/// A query for the functions that are not volatile. Functions that only the server calls (input and output of
/// types, support of indexes) are no subjects, since they take or return types that no column has.
const FUNCTIONS: &str = "
SELECT p.oid::regprocedure::text, quote_ident(p.proname), ARRAY(SELECT format_type(a.oid, NULL) FROM unnest(p.proargtypes) WITH ORDINALITY a(oid, n) ORDER BY n),
    p.prokind::text, coalesce(g.aggkind::text, 'n'), coalesce(g.aggnumdirectargs::int, 0), p.provariadic <> 0
FROM pg_proc p LEFT JOIN pg_aggregate g ON g.aggfnoid = p.oid
WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.provolatile <> 'v' AND p.prokind IN ('f', 'a', 'w')
    AND p.prorettype NOT IN ('void'::regtype, 'internal'::regtype, 'cstring'::regtype, 'trigger'::regtype, 'event_trigger'::regtype)
ORDER BY 1";

const OPERATORS: &str = "
SELECT o.oid::regoperator::text, o.oprname, CASE WHEN o.oprleft <> 0 THEN format_type(o.oprleft, NULL) END, format_type(o.oprright, NULL)
FROM pg_operator o JOIN pg_proc p ON p.oid = o.oprcode
WHERE o.oprnamespace = 'pg_catalog'::regnamespace AND o.oprright <> 0 AND p.provolatile <> 'v' ORDER BY 1";

const CASTS: &str = "
SELECT format_type(c.castsource, NULL), format_type(c.casttarget, NULL) FROM pg_cast c WHERE c.oid < 16384 ORDER BY 1, 2";

/// Aggregates whose result depends on the order of their rows.
const ORDERED: &[&str] =
    &["array_agg", "string_agg", "json_agg", "json_agg_strict", "jsonb_agg", "jsonb_agg_strict", "xmlagg"];

/// Reads all subjects from the server's catalogs.
pub(super) async fn all(s: &Session) -> Vec<Subject> {
    let spelling = spellings(s).await;
    let known = |ty: &str| given(spelling.iter().find(|(long, _)| long == ty).map_or(ty, |(_, short)| short));
    let mut subjects = Vec::new();
    for r in s.client().query(FUNCTIONS, &[]).await.unwrap() {
        let args: Option<Vec<&str>> = r.get::<_, Vec<String>>(2).iter().map(|ty| known(ty)).collect();
        let Some(args) = args else { continue };
        let (signature, name): (String, String) = (r.get(0), r.get(1));
        let (kind, aggregate): (String, String) = (r.get(3), r.get(4));
        let queries = match kind.as_str() {
            "a" => aggregates(&name, &args, &aggregate, r.get(5)),
            "w" => calls(&args, |args| {
                format!("SELECT id, {name}({args}) OVER (PARTITION BY k ORDER BY id) AS v FROM c")
            }),
            _ => calls(&args, |args| format!("SELECT id, {name}({args}) AS v FROM c")),
        };
        let kind = match kind.as_str() {
            "a" => "aggregate",
            "w" => "window function",
            _ => "function",
        };
        subjects.push(Subject { name: format!("{kind} {signature}"), queries });
    }
    for r in s.client().query(OPERATORS, &[]).await.unwrap() {
        let (signature, name): (String, String) = (r.get(0), r.get(1));
        let left: Option<String> = r.get(2);
        let Some(right) = known(&r.get::<_, String>(3)) else { continue };
        let queries = match left.as_deref().map(&known) {
            None => calls(&[right], |args| format!("SELECT id, {name} {args} AS v FROM c")),
            Some(Some(left)) => calls(&[left, right], |args| {
                let (l, r) = args.split_once(", ").unwrap();
                format!("SELECT id, {l} {name} {r} AS v FROM c")
            }),
            Some(None) => continue,
        };
        subjects.push(Subject { name: format!("operator {signature}"), queries });
    }
    for r in s.client().query(CASTS, &[]).await.unwrap() {
        let (from, to): (String, String) = (r.get(0), r.get(1));
        let Some(given) = known(&from) else { continue };
        let queries = calls(&[given], |args| format!("SELECT id, CAST({args} AS {to}) AS v FROM c"));
        subjects.push(Subject { name: format!("cast from {from} to {to}"), queries });
    }
    subjects.extend(types().flat_map(of_type));
    subjects
}

/// Returns each type of the table as `format_type` writes it, together with the name of the type in the
/// table's list.
async fn spellings(s: &Session) -> Vec<(String, &'static str)> {
    let mut all = Vec::new();
    for ty in types() {
        let long = s.client().query_one("SELECT format_type($1::text::regtype, NULL)", &[&ty]).await.unwrap();
        all.push((long.get(0), ty));
    }
    all
}

/// Returns queries of a call. The first query has the columns as arguments. In the other queries, literals
/// replace only the last argument, or each argument after the first, or every argument.
fn calls(args: &[&str], query: impl Fn(&str) -> String) -> Vec<String> {
    let columns: Vec<String> = args.iter().map(|ty| column(ty)).collect();
    let mut lists = vec![columns.clone()];
    for nth in 0..6 {
        let constant = |ty: &str, place: usize| {
            let all = literals(ty);
            all[(nth + place * (nth % 2)) % all.len()].clone()
        };
        let constants: Vec<String> = args.iter().enumerate().map(|(place, ty)| constant(ty, place)).collect();
        if let [.., _] = args {
            let last = args.len() - 1;
            lists.push([&columns[..last], &constants[last..]].concat());
            lists.push([&columns[..1], &constants[1..]].concat());
        }
    }
    for nth in 0..6 {
        let all = args.iter().map(|ty| literals(ty));
        lists.push(all.map(|all| all[nth % all.len()].clone()).collect());
    }
    lists.iter().map(|list| query(&list.join(", "))).collect()
}

fn aggregates(name: &str, args: &[&str], kind: &str, direct: i32) -> Vec<String> {
    let direct = usize::try_from(direct).unwrap().min(args.len());
    if kind == "n" {
        let order = if ORDERED.contains(&name.trim_matches('"')) || name.contains("object_agg") {
            " ORDER BY id"
        } else {
            ""
        };
        return calls(args, |args| {
            let args = if args.is_empty() { "*" } else { args };
            format!("SELECT k, {name}({args}{order}) AS v FROM c GROUP BY k")
        });
    }
    let sorted: Vec<String> = args[direct..].iter().map(|ty| column(ty)).collect();
    let sorted = if sorted.is_empty() { args.iter().map(|ty| column(ty)).collect() } else { sorted };
    calls(&args[..direct], |direct| {
        format!(
            "SELECT k, {name}({direct}) WITHIN GROUP (ORDER BY {}) AS v FROM c GROUP BY k",
            sorted.join(", ")
        )
    })
}

/// Returns the uses of a type. A use shows, groups, counts, orders, compares or joins its values.
fn of_type(ty: &'static str) -> Vec<Subject> {
    let c = column(ty);
    [
        ("shown", format!("SELECT id, {c} AS v FROM c")),
        ("distinct", format!("SELECT DISTINCT {c} AS v FROM c")),
        ("grouped", format!("SELECT {c} AS v, count(*) AS n FROM c GROUP BY {c}")),
        ("counted", format!("SELECT k, count(DISTINCT {c}) AS v FROM c GROUP BY k")),
        ("joined", format!("SELECT a.id, b.id AS other FROM c a JOIN c b ON a.{c} = b.{c}")),
        ("first", format!("SELECT DISTINCT ON (k) k, {c} AS v FROM c ORDER BY k, {c}, id")),
        ("collected", format!("SELECT k, array_agg({c} ORDER BY id) AS v FROM c GROUP BY k")),
        ("text", format!("SELECT id, {c}::text AS v FROM c")),
        ("row", format!("SELECT id, ROW({c}, id) AS v FROM c")),
        ("chosen", format!("SELECT id, CASE WHEN k = 1 THEN {c} END AS v, coalesce({c}, {c}) AS w FROM c")),
        ("least", format!("SELECT id, least({c}, {c}) AS v, nullif({c}, {c}) AS w FROM c")),
        ("kept apart", format!("SELECT {c} AS v FROM c WHERE k = 0 EXCEPT SELECT {c} FROM c WHERE k = 1")),
    ]
    .map(|(use_of, query)| Subject { name: format!("type {ty}: {use_of}"), queries: vec![query] })
    .into()
}
