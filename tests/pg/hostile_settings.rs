//! Settings of sessions that write, plan and refresh change no result. The tests set each setting that a
//! session may set to unusual values. The tests catch results that depend on a setting that trickle did not
//! fix, and errors that lack the name of the setting.

use crate::support::{Db, Driver, count, is_todays, name, open, run, todays_server, try_refresh};
use std::fmt::Write;
use trickle_client::{NewStreamTable, RefreshMode, Session, Settings, Trickle};
use trickle_core::cost::Force;

const TABLES: &str = "
    CREATE TABLE h (id int PRIMARY KEY, at timestamptz, lasts interval, f float8, b bytea, word text, n numeric, tags text[]);
    CREATE TABLE k (id int PRIMARY KEY, word text);
    INSERT INTO h SELECT i, '2024-02-28 23:30:00+00'::timestamptz + i * interval '7 hours', i * interval '1 day 3 hours', i / 7.0,
        decode(lpad(to_hex(i), 4, '0'), 'hex'), CASE i % 4 WHEN 0 THEN 'a\\b' WHEN 1 THEN NULL ELSE 'running Wörter' END, i / 3.0,
        ARRAY['NULL', NULL, 'x'] FROM generate_series(1, 30) i;
    INSERT INTO k SELECT i, 'k' || i FROM generate_series(1, 10) i";

/// Queries whose values depend on settings. Each query is created under the test's settings.
const QUERIES: [(&str, &str); 6] = [
    (
        "texts",
        "SELECT id, at::text AS a, lasts::text AS l, f::text AS f, b::text AS b, tags::text AS t, at::date::text AS d FROM h",
    ),
    ("searched", "SELECT id, to_tsvector(word)::text AS v, to_char(at, 'TMMonth HH24 TZ') AS c FROM h"),
    (
        "grouped",
        "SELECT word, date_trunc('day', at) AS day, count(*) AS n, sum(n) AS s, avg(n) AS m FROM h GROUP BY 1, 2",
    ),
    (
        "joined",
        "SELECT h.id, k.word, row_number() OVER (PARTITION BY h.word ORDER BY h.id) AS nth FROM h LEFT JOIN k ON k.id = h.id % 12",
    ),
    (
        "few",
        "SELECT id, word FROM h WHERE word = 'a\\b' OR n = NULL OR at > '2024-03-01' ORDER BY id DESC LIMIT 7",
    ),
    ("all_of_it", "SELECT DISTINCT h::text AS h FROM h WHERE NOT EXISTS (SELECT FROM k WHERE k.id = h.id)"),
];

/// The stream tables of `QUERIES`, and the IMMEDIATE stream tables.
const TABLES_OF_QUERIES: [&str; 8] =
    ["texts", "searched", "grouped", "joined", "few", "all_of_it", "kept_grouped", "kept_joined"];

/// A query for the settings that a session may set, with some values of each. The values are the opposite
/// boolean, the other values of an enum, and the least and the greatest number.
const VALUES: &str = "
    SELECT name, v.value FROM pg_settings CROSS JOIN LATERAL (
        SELECT CASE setting WHEN 'on' THEN 'off' ELSE 'on' END AS value WHERE vartype = 'bool'
        UNION ALL SELECT e FROM unnest(enumvals) e WHERE vartype = 'enum' AND e <> setting
        UNION ALL SELECT unnest(ARRAY[min_val, max_val]) WHERE vartype IN ('integer', 'real')) v
    WHERE context IN ('user', 'superuser') AND name <> ALL (ARRAY[
        -- Of the server's own tests and logs; one allocates what it says, one ends the session at any error, as it is meant to.
        'temp_buffers', 'exit_on_error', 'trace_notify', 'allow_system_table_mods', 'ignore_checksum_failure', 'zero_damaged_pages',
        'transaction_read_only', 'transaction_isolation', 'transaction_deferrable'])
      AND name NOT LIKE 'log%' AND name NOT LIKE 'debug_print%' AND name NOT LIKE 'trace%' AND name NOT LIKE 'pg_trickle.%'
    ORDER BY 1, 2";

/// Values of settings that are texts, and timeouts that end before any statement can finish.
const MORE: &[(&str, &str)] = &[
    ("DateStyle", "SQL, DMY"),
    ("DateStyle", "German"),
    ("DateStyle", "Postgres, MDY"),
    ("TimeZone", "Pacific/Chatham"),
    ("TimeZone", "<+05>-05"),
    ("timezone_abbreviations", "Australia"),
    ("default_text_search_config", "pg_catalog.german"),
    ("lc_monetary", "C"),
    ("lc_numeric", "C"),
    ("lc_time", "C"),
    ("lc_messages", "C"),
    ("search_path", "evil, pg_catalog, public"),
    ("search_path", ""),
    ("default_tablespace", "pg_default"),
    ("temp_tablespaces", "pg_default"),
    ("default_table_access_method", "heap"),
    ("statement_timeout", "1"),
    ("lock_timeout", "1"),
    ("idle_in_transaction_session_timeout", "1"),
    ("transaction_timeout", "1"),
    ("temp_file_limit", "0"),
    ("work_mem", "64"),
    ("restrict_nonsystem_relation_kind", "view"),
    ("application_name", "x'; DROP TABLE h; --"),
];

async fn values(s: &Session) -> Vec<(String, String)> {
    let rows = s.client().query(VALUES, &[]).await.unwrap();
    let of_server = rows.iter().map(|r| (r.get(0), r.get(1)));
    let there = s.client().query("SELECT lower(name) FROM pg_settings", &[]).await.unwrap();
    let there: Vec<String> = there.iter().map(|r| r.get(0)).collect();
    let more = MORE.iter().filter(|(name, _)| there.contains(&name.to_lowercase()));
    of_server.chain(more.map(|(n, v)| ((*n).to_owned(), (*v).to_owned()))).collect()
}

/// Prefix of a fault that is reported even if its text names the setting.
const WRONG: &str = "wrong:";

/// Returns the fault that occurs under one value of a setting, if any.
async fn fault(db: &Db, control: &Session, setting: &str, value: &str, nth: usize) -> Option<String> {
    let named = |told: &str| {
        let told = told.to_lowercase().replace('_', " ");
        told.contains(&setting.to_lowercase().replace('_', " "))
    };
    let list =
        if setting == "search_path" { value.to_owned() } else { format!("'{}'", value.replace('\'', "''")) };
    let list = if list.is_empty() { "''".to_owned() } else { list };
    let set = format!("ALTER DATABASE {} SET {setting} = {list}", db_name(control).await);
    // The server refuses some values, and the test skips these.
    if control.client().batch_execute(&set).await.is_err() {
        return None;
    }
    let found = under(db, control, nth).await;
    run(control, &format!("ALTER DATABASE {} RESET ALL", db_name(control).await)).await;
    found
        .err()
        .filter(|told| told.starts_with(WRONG) || !named(told))
        .map(|told| format!("{setting} = {value}: {told}"))
}

async fn db_name(s: &Session) -> String {
    s.client().query_one("SELECT quote_ident(current_database())", &[]).await.unwrap().get(0)
}

/// Writes, alters and refreshes in new sessions. Compares in a session that began earlier.
async fn under(db: &Db, control: &Session, nth: usize) -> Result<(), String> {
    let writer = db.try_session().await.map_err(|e| format!("{e:?}"))?;
    let write = format!(
        "UPDATE public.h SET word = 'running w{nth}', at = at + interval '1 hour' WHERE id % 5 = {}; DELETE FROM public.h WHERE id = {}; \
         INSERT INTO public.h (id, at, word, f) VALUES ({}, timestamptz '2024-05-01 10:00:00+00', 'a', 0.1)",
        nth % 5,
        nth % 30,
        1000 + nth
    );
    match writer.client().batch_execute(&write).await {
        Ok(()) => {}
        // If the setting makes the session read-only, the control session writes instead.
        Err(e) if e.code().is_some_and(|c| c.code() == "25006") => run(control, &write).await,
        Err(e) => return Err(format!("a writer fails: {e:?}")),
    }
    let session = db.try_session().await.map_err(|e| format!("{e:?}"))?;
    let settings = Settings { force: Some(Force::Incremental), ..Settings::default() };
    let mut t = Driver::of(Trickle::attach(session, settings).await.map_err(|e| format!("{e:?}"))?);
    for alter in ["", "ALTER TABLE h ALTER n TYPE numeric(20,5)", "ALTER TABLE h ALTER n TYPE numeric"] {
        if nth.is_multiple_of(3) && !alter.is_empty() {
            run(control, alter).await;
        }
        // An alteration may change values of a source of an IMMEDIATE stream table, although no trigger
        // fires. The refresh of the stream table notices the alteration.
        for table in TABLES_OF_QUERIES {
            try_refresh(&mut t, table).await.map_err(|e| format!("{table}: {e:?}"))?;
        }
    }
    compare(control).await
}

async fn compare(control: &Session) -> Result<(), String> {
    let mut wrong = String::new();
    for of in TABLES_OF_QUERIES {
        for (_, query) in QUERIES.iter().filter(|(table, _)| of.ends_with(table)) {
            let differ = format!(
                "SELECT count(*) FROM ((SELECT d::text FROM {of} d EXCEPT ALL SELECT d::text FROM ({query}) d) UNION ALL \
                (SELECT d::text FROM ({query}) d EXCEPT ALL SELECT d::text FROM {of} d)) d"
            );
            if count(control, &differ).await > 0 {
                let _ = write!(wrong, " {of}");
            }
        }
    }
    if wrong.is_empty() { Ok(()) } else { Err(format!("{WRONG}{wrong}")) }
}

#[test]
fn no_setting_of_a_session_changes_a_result() {
    todays_server(async |db| {
        let control = db.session().await;
        run(&control, "CREATE SCHEMA evil; CREATE TABLE evil.h (LIKE pg_class); CREATE FUNCTION evil.to_tsvector(text) RETURNS text \
            LANGUAGE sql IMMUTABLE AS 'SELECT ''evil''::text'").await;
        run(&control, TABLES).await;
        {
            let mut t = open(db).await;
            for (table, query) in QUERIES {
                t.create(&NewStreamTable::new(name(table), query)).await.unwrap();
            }
            for (table, query) in QUERIES.iter().filter(|(t, _)| ["grouped", "joined"].contains(t)) {
                let mode = Some(RefreshMode::Immediate);
                t.create(&NewStreamTable {
                    mode,
                    ..NewStreamTable::new(name(&format!("kept_{table}")), *query)
                })
                .await
                .unwrap();
            }
        }
        let mut faults = String::new();
        let values = values(&control).await;
        assert!(values.len() > 200, "{}", values.len());
        for (nth, (setting, value)) in values.iter().enumerate().filter(|(nth, _)| is_todays(*nth, 72)) {
            if let Some(fault) = fault(db, &control, setting, value, nth).await {
                let _ = writeln!(faults, "{fault}");
            }
        }
        assert!(faults.is_empty(), "{faults}");
    });
}
