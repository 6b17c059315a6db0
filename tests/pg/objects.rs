//! docs/security.md lists every object that trickle makes in a database, with its owner, its rights and its
//! reason. The tests catch an object, a right or a SECURITY DEFINER function that nobody has reviewed.
//! `TRICKLE_BLESS=1` writes the table of the page.

use crate::support::{Db, count, each_server, name, newest_server, open, run};
use std::collections::BTreeMap;
use std::path::PathBuf;
use trickle_client::capture::CaptureOptions;
use trickle_client::schema::VERSION;
use trickle_client::{NewStreamTable, RefreshMode, Session, Settings, Trickle};
use trickle_core::cdc::Mode;
use trickle_core::cost::Force;

/// The reason for each object, by its name in the table. The test fails for an object that is missing here.
const REASONS: &[(&str, &str)] = &[
    ("schema pgtrickle", "the catalog and the SQL functions"),
    ("schema pgtrickle_changes", "buffers, hidden state and trigger functions"),
    ("table pgtrickle.pgt_buffers", "how the changes of each source are captured"),
    ("table pgtrickle.pgt_catalog_version", "the version of the catalog, and settings that all share"),
    ("table pgtrickle.pgt_dependencies", "what each stream table reads"),
    ("table pgtrickle.pgt_lease_terms", "until when a refresher leads"),
    ("table pgtrickle.pgt_leases", "which of several refreshers works on schedule"),
    ("table pgtrickle.pgt_marks", "changes that could not be captured, and why"),
    ("table pgtrickle.pgt_refresh_history", "what each refresh did"),
    ("table pgtrickle.pgt_stream_tables", "the stream tables"),
    ("view pgtrickle.pgt_errors", "the last errors, which show rows, of the stream tables of whoever asks"),
    ("sequence pgtrickle.pgt_refresh_history_refresh_id_seq", "numbers refreshes"),
    ("sequence pgtrickle.pgt_stream_tables_pgt_id_seq", "numbers stream tables"),
    ("function pgtrickle.columns_now", "the names that captured columns have now; called by capture"),
    ("function pgtrickle.definition", "tells a refresher that it planned something else"),
    ("function pgtrickle.fingerprint", "tells that a source was altered"),
    ("function pgtrickle.functions_fingerprint", "tells that a function of a query was replaced"),
    ("function pgtrickle.give_lease", "a refresher that ends lets others lead"),
    (
        "function pgtrickle.grant_to",
        "lets a role have stream tables of its own; only the owner of the catalog can grant",
    ),
    ("function pgtrickle.never_null", "tells which columns hold no NULL, as the server's catalogs do"),
    ("function pgtrickle.is_key", "tells whether an index is a key, as the server's catalogs do"),
    ("function pgtrickle.held_columns", "tells which columns a buffer holds"),
    ("function pgtrickle.numbers", "tells the numbers of columns"),
    ("function pgtrickle.relied", "tells what is relied on of a source"),
    (
        "function pgtrickle.relied_now",
        "tells what is relied on of a source that was altered in nothing that matters",
    ),
    ("function pgtrickle.still_serves", "tells that nothing was altered which is relied on"),
    ("function pgtrickle.has_grown", "tells that a source has got columns, and nothing else"),
    ("function pgtrickle.hold_lease", "keeps others from leading until a refresh is committed"),
    ("function pgtrickle.home", "tells that the catalog came with a dump"),
    (
        "function pgtrickle.immediate_fingerprint",
        "tells that a trigger of an IMMEDIATE stream table was altered",
    ),
    ("function pgtrickle.is_subscribed", "tells that a subscription writes a source"),
    (
        "function pgtrickle.keep_one_row",
        "trigger of pgt_catalog_version: a restored dump brings a second row",
    ),
    (
        "function pgtrickle.mark_readers",
        "has readers of a source computed anew; theirs may be another owner's",
    ),
    (
        "function pgtrickle.child_misfit",
        "tells a trigger function that a former partition or child was altered",
    ),
    ("function pgtrickle.has_other_partitions", "tells a trigger function that its table has got partitions"),
    (
        "function pgtrickle.has_other_layout",
        "tells a trigger function that a partition has its columns at other places",
    ),
    ("function pgtrickle.children", "tells the partitions and children of a source"),
    ("function pgtrickle.lost_key", "tells a trigger function that a key of its table is gone"),
    ("function pgtrickle.column_names", "tells the names of the columns of a source"),
    ("function pgtrickle.misfit", "tells a trigger function that its table was altered"),
    ("function pgtrickle.forget", "deletes what the catalog holds of a stream table that went"),
    ("function pgtrickle.refuse_writes", "trigger of each stream table: refuses writes of others"),
    ("function pgtrickle.revoke_from", "takes back what grant_to gave"),
    ("function pgtrickle.hand_over", "makes hidden tables of others the catalog owner's; called by upgrades"),
    (
        "function pgtrickle.hand_to_owner",
        "gives an owner what the triggers of an IMMEDIATE stream table need",
    ),
    (
        "function pgtrickle.let_in_owners",
        "lets new owners of stream tables use the catalog; called by the extension",
    ),
    ("function pgtrickle.require_keeper", "fails for others than the owner of the catalog"),
    ("function pgtrickle.require_owner", "fails for others than the owners of tables"),
    ("function pgtrickle.row_security", "tells which rows of a source a query's owner may read"),
    ("function pgtrickle.safe_path", "the schemas of a search path in which no stranger may create"),
    (
        "function pgtrickle.stop_keeping",
        "notes that something is missing which keeping an IMMEDIATE stream table takes",
    ),
    (
        "function pgtrickle.pairing_key",
        "tells the key by which a query that is computed anew writes rows that change",
    ),
    (
        "function pgtrickle.rights_of",
        "tells what the triggers of an IMMEDIATE stream table may do, and that its owner lost a right",
    ),
    (
        "function pgtrickle.is_safe_path",
        "tells the triggers of an IMMEDIATE stream table whether others may create in their search path",
    ),
    (
        "function pgtrickle.type_names",
        "tells those triggers the names of types and enum values, to see that one was renamed",
    ),
    (
        "function pgtrickle.merge_may_have_moved",
        "tells a trigger that a MERGE may have moved rows between partitions, of which it is not told",
    ),
    (
        "function pgtrickle.view_text",
        "gives the text of a view, and a random one where it would have to wait",
    ),
    ("function pgtrickle.parts", "tells which partitions of a source stayed, as texts that change with them"),
    ("function pgtrickle.part_conditions", "tells which rows of a source are in which partition"),
    ("function pgtrickle.captured_parts", "tells which partitions of a source were captured in full"),
    ("function pgtrickle.new_partitions", "tells the new partitions of a source, if their rows are a delta"),
    (
        "function pgtrickle.leaving_partitions",
        "tells whether the rows of a partition that leaves a source are a delta",
    ),
    ("function pgtrickle.takes_rows_of", "tells whether a buffer has room for the rows of a partition"),
    (
        "function pgtrickle.has_temporary_child",
        "tells a trigger or a refresh that its session has a child of the table that no other session sees",
    ),
    (
        "function pgtrickle.require_sources",
        "tells a refresh that a partition came or went while it read the table, or that only its session sees a child of it",
    ),
    (
        "function pgtrickle.objects_fingerprint",
        "tells that an operator, a cast, a collation or a text search configuration was altered",
    ),
    (
        "function pgtrickle.types_fingerprint",
        "tells that a cast, a domain, an operator class or a name of a type was altered",
    ),
    ("function pgtrickle.without_grants", "takes all rights on a hidden table from others"),
    (
        "function pgtrickle.without_statistics",
        "keeps ANALYZE from running functions of others on hidden tables",
    ),
    ("function pgtrickle.take_lease", "a refresher begins to lead"),
    ("function pgtrickle.triggers_fingerprint", "tells that a capture trigger was altered"),
    ("function pgtrickle.unchanged", "tells which stream tables need not be planned anew"),
    ("view pgtrickle_changes.changes_<source>", "the buffer of a source, over its segments"),
    (
        "table pgtrickle_changes.changes_<source>_<n>",
        "a segment of a buffer: changes of the captured columns",
    ),
    (
        "function pgtrickle_changes.capture_<source>_<n>_<event>",
        "writes the changes of a source into its buffer",
    ),
    (
        "table pgtrickle_changes.immediate_<id>",
        "locks and counts the statements that keep an IMMEDIATE stream table",
    ),
    ("table pgtrickle_changes.immediate_<id>_<source>", "changes of a statement that writes several sources"),
    ("function pgtrickle_changes.immediate_<id>_<source>_<event>", "applies the change of a statement"),
    ("function pgtrickle_changes.immediate_<id>_<source>_begin", "counts a statement that begins"),
    ("table pgtrickle_changes.state_<id>_<n>", "what a stream table needs to know beside its rows"),
    ("table <stream table>", "the result, with the rights that its owner gives"),
    ("trigger trickle_guard on <stream table>", "refuses writes of others"),
    ("trigger trickle_capture_<source>_<event> on <source>", "captures a change; ENABLE ALWAYS"),
    (
        "trigger trickle_capture_<source>_<event> on <stream table>",
        "captures a change for what reads it; ENABLE ALWAYS",
    ),
    (
        "trigger trickle_immediate_<id>_<source>_<event> on <source>",
        "keeps an IMMEDIATE stream table; ENABLE ALWAYS",
    ),
    (
        "trigger trickle_immediate_<id>_<source>_<event>_begin on <source>",
        "counts a statement that begins; ENABLE ALWAYS",
    ),
    ("trigger one_row on pgtrickle.pgt_catalog_version", "keeps one row there"),
    ("trigger forget on pgtrickle.pgt_stream_tables", "deletes what belongs to a stream table that went"),
    ("language pgtrickle_copy", "capture of changes in C"),
    ("event trigger pg_trickle_alters", "follows DDL on what stream tables read"),
    ("event trigger pg_trickle_drops", "follows DROP of what stream tables read"),
    ("function pgtrickle.on_alter", "called by the event trigger pg_trickle_alters"),
    ("function pgtrickle.on_drop", "called by the event trigger pg_trickle_drops"),
];

/// A query for all objects that are not members of the extension. The query returns the kind and name of each
/// object, its owner, the rights of other roles, SECURITY, and search_path.
const OBJECTS: &str = "
WITH known(oid, word) AS (
    SELECT pgt_relid, '<stream table>' FROM pgtrickle.pgt_stream_tables
    UNION ALL SELECT oid, '<source>' FROM pg_class WHERE relname IN ('orders', 'lines') AND relkind = 'r'
), what(name, owner, acl, security, path, columns, comment) AS (
    SELECT 'schema ' || nspname, nspowner, nspacl, '', NULL, NULL::aclitem[], NULL FROM pg_namespace
    WHERE nspname IN ('pgtrickle', 'pgtrickle_changes')
    UNION ALL
    SELECT format('%s %s', CASE c.relkind WHEN 'v' THEN 'view' WHEN 'S' THEN 'sequence' ELSE 'table' END,
            coalesce(k.word, c.oid::regclass::text)), c.relowner, c.relacl,
        CASE WHEN c.relrowsecurity THEN 'row security' ELSE '' END, NULL,
        (SELECT array_agg(i) FROM pg_attribute a CROSS JOIN LATERAL unnest(a.attacl) i WHERE a.attrelid = c.oid), NULL
    FROM pg_class c LEFT JOIN known k ON k.oid = c.oid
    WHERE (c.relnamespace IN ('pgtrickle'::regnamespace, 'pgtrickle_changes'::regnamespace) AND c.relkind IN ('r', 'v', 'S')
        OR k.word = '<stream table>')
    UNION ALL
    SELECT format('function %s.%s', p.pronamespace::regnamespace, p.proname), p.proowner,
        coalesce(p.proacl, acldefault('f', p.proowner)), CASE WHEN p.prosecdef THEN 'DEFINER' ELSE 'INVOKER' END,
        (SELECT substr(s, 13) FROM unnest(p.proconfig) s WHERE s LIKE 'search_path=%'), NULL,
        (SELECT obj_description(p.oid, 'pg_proc') FROM pg_language l WHERE l.oid = p.prolang AND l.lanname = 'c')
    FROM pg_proc p WHERE p.pronamespace IN ('pgtrickle'::regnamespace, 'pgtrickle_changes'::regnamespace)
    UNION ALL
    SELECT format('trigger %s on %s', g.tgname, coalesce(k.word, g.tgrelid::regclass::text)), c.relowner, NULL, '', NULL, NULL, NULL
    FROM pg_trigger g JOIN pg_class c ON c.oid = g.tgrelid LEFT JOIN known k ON k.oid = g.tgrelid
    WHERE NOT g.tgisinternal AND (k.word IS NOT NULL OR c.relnamespace = 'pgtrickle'::regnamespace)
    UNION ALL
    SELECT 'language ' || lanname, lanowner, lanacl, '', NULL, NULL, NULL FROM pg_language WHERE lanname LIKE 'pgtrickle%'
    UNION ALL
    SELECT 'event trigger ' || evtname, evtowner, NULL, '', NULL, NULL, NULL FROM pg_event_trigger
)
SELECT w.name, r.rolname::text,
    (SELECT string_agg(DISTINCT CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END || ': ' || a.privilege_type, ', ')
     FROM (SELECT grantee, privilege_type FROM aclexplode(w.acl) UNION ALL
        SELECT grantee, privilege_type || ' of columns' FROM aclexplode(w.columns)) a WHERE a.grantee <> w.owner),
    w.security, coalesce(w.path, ''), w.comment
FROM what w JOIN pg_roles r ON r.oid = w.owner ORDER BY 1, 6";

/// Returns the name of an object. The varying parts are replaced by `<source>`, `<id>`, `<n>` and `<event>`.
fn general(object: &str, sources: &[String]) -> String {
    let mut out = Vec::new();
    for word in object.split(' ') {
        let dotted: Vec<&str> = word.rsplitn(2, '.').collect();
        let parts: Vec<String> = dotted[0].split('_').map(|part| part.to_owned()).collect();
        let made =
            ["changes", "capture", "immediate", "state"].iter().find(|m| parts.contains(&(**m).to_owned()));
        let Some(made) = made.filter(|_| word.contains("pgtrickle_changes.") || word.starts_with("trickle_"))
        else {
            out.push(word.to_owned());
            continue;
        };
        let mut seen = false;
        let parts = parts.into_iter().map(|p| match p.as_str() {
            "insert" | "update" | "delete" | "truncate" => "<event>".to_owned(),
            p if sources.iter().any(|s| s == p) => "<source>".to_owned(),
            p if p.chars().all(|c| c.is_ascii_digit()) => {
                let id = ["immediate", "state"].contains(made) && !std::mem::replace(&mut seen, true);
                if id { "<id>" } else { "<n>" }.to_owned()
            }
            p => p.to_owned(),
        });
        let last = parts.collect::<Vec<_>>().join("_");
        out.push(if dotted.len() == 2 { format!("{}.{last}", dotted[1]) } else { last });
    }
    out.join(" ")
}

/// Returns the owner of an object, in the words of the documentation page.
fn whose(role: &str) -> &'static str {
    match role {
        "keeper" => "owner of the catalog",
        "owner" => "owner of the source",
        _ => "another role",
    }
}

pub(crate) async fn table(s: &Session, whose: impl Fn(&str) -> &'static str) -> String {
    let sources =
        s.client().query("SELECT source_relid::text FROM pgtrickle.pgt_dependencies", &[]).await.unwrap();
    let sources: Vec<String> = sources.iter().map(|r| r.get(0)).collect();
    let mut lines = BTreeMap::new();
    for r in s.client().query(OBJECTS, &[]).await.unwrap() {
        let object = general(r.get(0), &sources);
        let known = REASONS.iter().find(|(o, _)| *o == object).map(|(_, reason)| (*reason).to_owned());
        // A function of the SQL API has its comment as its reason.
        let reason = known.or_else(|| r.get(5)).unwrap_or_else(|| panic!("why is there {object}?"));
        let (rights, security, path): (Option<String>, String, String) = (r.get(2), r.get(3), r.get(4));
        let cells = [whose(r.get(1)).to_owned(), rights.unwrap_or_else(|| "–".into()), security, path];
        lines.insert(
            object.clone(),
            format!("| {object} | {} | {reason} |", cells.join(" | ")).replace('<', "&lt;"),
        );
    }
    let head =
        "| object | owner | rights of others | security | search_path | reason |\n|---|---|---|---|---|---|";
    format!("{head}\n{}\n", lines.into_values().collect::<Vec<_>>().join("\n"))
}

/// Compares `table` with the table between two comments of the page. With `TRICKLE_BLESS`, replaces the
/// page's table.
pub(crate) fn compare(page: &str, mark: &str, table: &str) {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(page);
    let text = std::fs::read_to_string(&file).unwrap();
    let (begin, end) =
        (format!("<!-- {mark}: made by TRICKLE_BLESS=1 -->\n"), format!("<!-- end of {mark} -->"));
    let (before, rest) =
        text.split_once(&begin).unwrap_or_else(|| panic!("{mark} has no place in docs/{page}"));
    let (found, after) = rest.split_once(&end).unwrap();
    if std::env::var_os("TRICKLE_BLESS").is_some() {
        std::fs::write(&file, format!("{before}{begin}{table}{end}{after}")).unwrap();
    } else {
        assert_eq!(found, table, "docs/{page} is not as found; TRICKLE_BLESS=1 writes it");
    }
}

/// Makes stream tables of each kind: with hidden states, IMMEDIATE, over another stream table, and with
/// capture by row triggers.
async fn made(db: &Db) -> Session {
    let s = db.session().await;
    for role in ["keeper", "owner"] {
        let text = format!(
            "DO $$ BEGIN CREATE ROLE {role} LOGIN; EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$"
        );
        run(&s, &text).await;
    }
    run(&s, "GRANT owner TO keeper; CREATE SCHEMA shop AUTHORIZATION owner; GRANT CREATE, USAGE ON SCHEMA shop TO keeper; \
             GRANT CREATE ON DATABASE current TO keeper".replace("current", &db_name(&s).await).as_str()).await;
    run(
        &s,
        "SET ROLE owner; CREATE TABLE shop.orders (id int PRIMARY KEY, k int, v numeric); \
             CREATE TABLE shop.lines (id int PRIMARY KEY, o int, n int); RESET ROLE",
    )
    .await;
    run(&s, "SET SESSION AUTHORIZATION keeper").await;
    s
}

async fn db_name(s: &Session) -> String {
    s.client().query_one("SELECT quote_ident(current_database())", &[]).await.unwrap().get(0)
}

/// No function reads a whole system catalog at each refresh, not even a function that was planned while the
/// database was small.
#[test]
fn catalog_functions_use_indexes_and_one_plan() {
    newest_server(async |db| {
        let t = open(db).await;
        let others = "SELECT count(*) FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang \
             WHERE p.pronamespace = 'pgtrickle'::regnamespace AND p.provolatile = 's' AND l.lanname = 'plpgsql' AND NOT \
             p.proconfig @> ARRAY['enable_seqscan=off', 'plan_cache_mode=force_generic_plan', 'jit=off']";
        let all = others.replace(" AND NOT p.proconfig @> ", " AND p.proconfig @> ");
        assert_eq!(count(t.connection(), others).await, 0);
        assert!(count(t.connection(), &all).await > 25);
    });
}

#[test]
fn each_object_has_an_owner_rights_and_a_reason() {
    each_server(async |db| {
        let s = made(db).await;
        let keeper = db.session().await;
        run(&keeper, "SET SESSION AUTHORIZATION keeper; SET search_path = shop").await;
        let settings = Settings { force: Some(Force::Incremental), ..Settings::default() };
        let mut t = Trickle::attach(keeper, settings.clone()).await.unwrap();
        t.migrate(VERSION).await.unwrap();
        let distinct = "SELECT k, count(DISTINCT v) AS n, avg(v) AS a FROM orders GROUP BY k";
        t.create(&NewStreamTable::new(name("distinct_values"), distinct)).await.unwrap();
        let many = "SELECT count(*) AS n, sum(n) AS s FROM distinct_values WHERE n > 1";
        t.create(&NewStreamTable::new(name("many"), many)).await.unwrap();
        for query in [
            "SELECT o.k, sum(l.n) AS s FROM orders o JOIN lines l ON l.o = o.id GROUP BY o.k",
            "SELECT id, n FROM lines",
        ] {
            let new =
                NewStreamTable::new(name(if query.contains("JOIN") { "at_once" } else { "copied" }), query);
            t.create(&NewStreamTable { mode: Some(RefreshMode::Immediate), ..new }).await.unwrap();
        }
        drop(t);
        let by_row = CaptureOptions { mode: Mode::Row, ..CaptureOptions::default() };
        let other = db.session().await;
        run(&other, "SET SESSION AUTHORIZATION keeper; SET search_path = shop").await;
        let mut t = Trickle::open(other, Settings { capture: by_row, ..settings }).await.unwrap();
        t.create(&NewStreamTable::new(name("by_row"), "SELECT id, o FROM lines")).await.unwrap();
        assert!(count(&s, "SELECT count(*) FROM pgtrickle.pgt_stream_tables").await >= 5);
        run(&s, "RESET SESSION AUTHORIZATION").await;
        compare("security.md", "objects of the program", &table(&s, whose).await);
    });
}
