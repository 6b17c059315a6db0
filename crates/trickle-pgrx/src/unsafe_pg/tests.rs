//! Tests of the C interface alone, inside a server; `cargo pgrx test` runs them.

#![allow(clippy::unwrap_used, clippy::panic)]

#[pgrx::pg_schema]
mod tests {
    use crate::gucs;
    use crate::unsafe_pg::{ServerConnection, sqlstate};
    use pgrx::{pg_sys, pg_test};
    use std::time::Duration;
    use trickle_core::cdc::Mode;
    use trickle_core::cost::Force;
    use trickle_engine::Settings;
    use trickle_engine::capture::CaptureOptions;
    use trickle_engine::db::{Cell, Param};

    /// Runs a query that must give one row, and returns that row's values.
    fn row(inside: &ServerConnection, text: &str, params: &[Param<'_>]) -> Vec<Cell> {
        let rows = inside.run(text, params, false).unwrap_or_else(|e| panic!("{text}: {e:?}"));
        assert_eq!(rows.rows.len(), 1, "{text}");
        rows.rows[0].cells().to_vec()
    }

    fn number(inside: &ServerConnection, text: &str) -> i64 {
        match row(inside, text, &[])[..] {
            [Cell::Int8(n)] => n,
            ref other => panic!("{text}: {other:?}"),
        }
    }

    #[pg_test]
    fn values_are_the_same_after_the_server() {
        let inside = ServerConnection::enter();
        let int8s = Cell::Array(vec![Cell::Int8(-1), Cell::Int8(i64::MAX)]);
        let oids = Cell::Array(vec![Cell::Oid(0), Cell::Oid(u32::MAX)]);
        let texts = Cell::Array(vec![Cell::Text("a,\"b\\".into()), Cell::Null]);
        for (type_, value, expected) in [
            ("bool", Param::Bool(Some(true)), Cell::Bool(true)),
            ("int2", Param::Int2(Some(i16::MIN)), Cell::Int2(i16::MIN)),
            ("int4", Param::Int4(Some(i32::MIN)), Cell::Int4(i32::MIN)),
            ("int8", Param::Int8(Some(i64::MIN)), Cell::Int8(i64::MIN)),
            ("oid", Param::Oid(Some(u32::MAX)), Cell::Oid(u32::MAX)),
            ("oid", Param::Oid(Some(0)), Cell::Oid(0)),
            ("float8", Param::Float8(Some(-0.5)), Cell::Float8(-0.5)),
            ("text", Param::Text(Some("é'\\")), Cell::Text("é'\\".into())),
            ("jsonb", Param::Jsonb(Some("{\"a\":1}".into())), Cell::Json("{\"a\": 1}".into())),
            ("int8[]", Param::Int8s(Some(vec![-1, i64::MAX])), int8s),
            ("oid[]", Param::Oids(Some(vec![0, u32::MAX])), oids),
            ("text[]", Param::Texts(Some(vec![Some("a,\"b\\"), None])), texts),
            ("int8[]", Param::Int8s(Some(Vec::new())), Cell::Array(Vec::new())),
            ("text", Param::Null, Cell::Null),
            ("int8", Param::Int8(None), Cell::Null),
            ("oid[]", Param::Oids(None), Cell::Null),
        ] {
            let asked = format!("SELECT $1::{type_}, pg_typeof($1)::text");
            let [seen, named] = &row(&inside, &asked, std::slice::from_ref(&value))[..] else {
                panic!("{asked}")
            };
            assert_eq!(seen, &expected, "{asked} {value:?}");
            assert!(matches!(named, Cell::Text(_)), "{asked}");
        }
    }

    #[pg_test]
    fn a_statement_that_fails_undoes_itself_alone() {
        let inside = ServerConnection::enter();
        inside.batch("CREATE TEMP TABLE kept (id int PRIMARY KEY); INSERT INTO kept VALUES (1)").unwrap();
        let twice = inside.run("INSERT INTO kept VALUES (2), (1)", &[], false).unwrap_err();
        assert_eq!(twice.sqlstate(), Some("23505"), "{twice:?}");
        assert!(twice.detail().is_some_and(|d| d.contains("(id)=(1)")));
        let half = inside.batch("INSERT INTO kept VALUES (3); SELECT 1 / 0").unwrap_err();
        assert_eq!(half.sqlstate(), Some("22012"), "{half:?}");
        assert_eq!(number(&inside, "SELECT count(*) FROM kept"), 1);
        assert_eq!(inside.depth(), 0);
    }

    #[pg_test]
    fn errors_keep_their_code_and_point_at_their_place() {
        let inside = ServerConnection::enter();
        let wrong = inside.run("SELECT 1 +\n missing", &[], false).unwrap_err();
        assert_eq!((wrong.sqlstate(), wrong.position()), (Some("42703"), Some(13)), "{wrong:?}");
        let raises = "DO $$ BEGIN RAISE 'no' USING ERRCODE = 'TR001', HINT = 'ask'; END $$";
        let raised = inside.batch(raises).unwrap_err();
        assert_eq!((raised.sqlstate(), raised.hint()), (Some("TR001"), Some("ask")));
        let nul = inside.batch("SELECT '\0'").unwrap_err();
        assert_eq!(nul.sqlstate(), Some("22021"), "{nul:?}");
        let two = inside.run("SELECT 1; SELECT 2", &[], false).unwrap_err();
        assert_eq!(two.sqlstate(), Some("42601"), "{two:?}");
    }

    #[pg_test(error = "canceling statement due to user request")]
    fn that_the_user_cancels_is_no_answer() {
        let inside = ServerConnection::enter();
        let answer = inside.batch("SELECT pg_cancel_backend(pg_backend_pid()), pg_sleep(60)");
        panic!("it went on with {answer:?}");
    }

    #[pg_test]
    fn subtransactions_are_a_stack() {
        let inside = ServerConnection::enter();
        inside.batch("CREATE TEMP TABLE seen (id int)").unwrap();
        // SAFETY: a test in the one thread of a server process.
        let context = unsafe { pg_sys::CurrentMemoryContext };
        inside.begin(true);
        inside.batch("INSERT INTO seen VALUES (1); SET LOCAL work_mem = '1MB'").unwrap();
        inside.begin(false);
        inside.batch("INSERT INTO seen VALUES (2)").unwrap();
        inside.end(false);
        assert_eq!(number(&inside, "SELECT sum(id) FROM seen"), 1);
        inside.begin(true);
        inside.begin(true);
        inside.batch("INSERT INTO seen VALUES (4); SET LOCAL work_mem = '2MB'").unwrap();
        inside.unwind(1);
        assert_eq!(row(&inside, "SHOW work_mem", &[]), [Cell::Text("1MB".into())]);
        inside.end(true);
        assert_ne!(
            row(&inside, "SHOW work_mem", &[]),
            [Cell::Text("1MB".into())],
            "what was set in it is over"
        );
        assert_eq!(number(&inside, "SELECT sum(id) FROM seen"), 1);
        // SAFETY: a test in the one thread of a server process.
        assert_eq!(context, unsafe { pg_sys::CurrentMemoryContext });
    }

    #[pg_test]
    fn what_is_left_open_is_undone_and_settings_are_taken_back() {
        {
            let inside = ServerConnection::enter();
            inside.batch("CREATE TEMP TABLE there (id int); SET LOCAL work_mem = '3MB'").unwrap();
            inside.begin(false);
            inside.batch("INSERT INTO there VALUES (1)").unwrap();
            inside.take_snapshot();
            inside.begin(false);
        }
        let inside = ServerConnection::enter();
        assert_eq!(number(&inside, "SELECT count(*) FROM there"), 0);
        assert_ne!(row(&inside, "SHOW work_mem", &[]), [Cell::Text("3MB".into())]);
    }

    #[pg_test]
    fn a_refresh_sees_what_it_wrote_under_its_snapshot() {
        let inside = ServerConnection::enter();
        inside.batch("CREATE TEMP TABLE written (id int)").unwrap();
        inside.take_snapshot();
        for n in 1..4 {
            let done = inside.run("INSERT INTO written VALUES ($1)", &[Param::Int4(Some(n))], true).unwrap();
            assert_eq!(done.affected, 1);
            let seen = inside.run("SELECT count(*) FROM written", &[], true).unwrap();
            assert_eq!(seen.rows[0].cells(), [Cell::Int8(n.into())]);
        }
        inside.drop_snapshot();
        assert_eq!(number(&inside, "SELECT count(*) FROM written"), 3);
    }

    #[pg_test]
    fn a_kept_statement_goes_with_its_types_and_its_tables() {
        let inside = ServerConnection::enter();
        inside.batch("CREATE TEMP TABLE asked (id int); INSERT INTO asked VALUES (7)").unwrap();
        let seven = [Param::Int8(Some(7))];
        let plan = inside.prepare("SELECT * FROM asked WHERE id = $1", &seven).unwrap();
        assert!(plan.fits(&[Param::Int8(None)]) && !plan.fits(&[Param::Text(Some("7"))]));
        assert!(!plan.fits(&[]));
        for _ in 0..7 {
            assert_eq!(inside.run_kept(&plan, &seven, false).unwrap().rows[0].cells(), [Cell::Int4(7)]);
        }
        inside.batch("ALTER TABLE asked ALTER id TYPE bigint").unwrap();
        assert_eq!(inside.run_kept(&plan, &seven, false).unwrap().rows[0].cells(), [Cell::Int8(7)]);
        inside.batch("DROP TABLE asked").unwrap();
        let gone = inside.run_kept(&plan, &seven, false).unwrap_err();
        assert_eq!(gone.sqlstate(), Some("42P01"), "{gone:?}");
    }

    #[pg_test]
    fn columns_are_told_without_running_the_query() {
        let inside = ServerConnection::enter();
        inside.batch("CREATE FUNCTION pg_temp.never() RETURNS int LANGUAGE plpgsql VOLATILE AS $$ BEGIN RAISE 'ran'; END $$")
            .unwrap();
        let columns = inside.columns("SELECT pg_temp.never() AS a, 'x'::text AS \"B c\";").unwrap();
        assert_eq!(columns, [("a".to_owned(), 23), ("B c".to_owned(), 25)]);
    }

    #[pg_test]
    fn a_table_that_is_being_read_is_not_idle() {
        let inside = ServerConnection::enter();
        inside.batch("CREATE TEMP TABLE read (id int); INSERT INTO read VALUES (1), (2)").unwrap();
        let [Cell::Oid(oid)] = row(&inside, "SELECT 'read'::regclass::oid", &[])[..] else {
            panic!("no oid")
        };
        assert!(inside.require_idle(&[oid, u32::MAX]).is_ok());
        inside.batch("DECLARE reader CURSOR FOR SELECT * FROM read").unwrap();
        let used = inside.require_idle(&[oid]).unwrap_err();
        assert_eq!(used.sqlstate(), Some("55006"), "{used:?}");
        inside.batch("CLOSE reader").unwrap();
        assert!(inside.require_idle(&[oid]).is_ok());
    }

    #[pg_test]
    fn settings_are_those_in_force() {
        let inside = ServerConnection::enter();
        let before = gucs::settings();
        assert_eq!((before.force, before.max_delta_rows, before.merge_work_mem_mb), (None, None, None));
        assert_eq!(before.segment_bytes, Settings::default().segment_bytes);
        let all = "SET LOCAL pg_trickle.refresh_strategy = 'full'; SET LOCAL pg_trickle.max_delta_rows = 7; \
             SET LOCAL pg_trickle.differential_max_change_ratio = 0.25; SET LOCAL pg_trickle.merge_work_mem_mb = 8; \
             SET LOCAL pg_trickle.merge_work_mem_max_mb = 64; SET LOCAL pg_trickle.history_retention_days = 3; \
             SET LOCAL pg_trickle.max_consecutive_errors = 9; SET LOCAL pg_trickle.long_transaction_seconds = 11; \
             SET LOCAL pg_trickle.segment_bytes = 8192; SET LOCAL pg_trickle.cdc_trigger_mode = 'row'; SET LOCAL pg_trickle.change_buffer_unlogged = on";
        inside.batch(all).unwrap();
        let expected = Settings {
            force: Some(Force::Full),
            max_delta_rows: Some(7),
            max_change_ratio: Some(0.25),
            merge_work_mem_mb: Some(8),
            merge_work_mem_max_mb: Some(64),
            history_retention_days: 3,
            max_consecutive_errors: 9,
            long_transaction: Duration::from_secs(11),
            segment_bytes: 8192,
            capture: CaptureOptions { mode: Mode::Row, unlogged: true },
            ..before.clone()
        };
        assert_eq!(gucs::settings(), expected);
        inside.batch("SET LOCAL pg_trickle.use_prepared_statements = off").unwrap();
        assert!(!gucs::keeps_prepared());
        drop(inside);
        assert_eq!(gucs::settings(), before);
        assert!(gucs::keeps_prepared());
    }

    #[pg_test]
    fn codes_of_errors_are_written_as_the_server_does() {
        for (code, text) in [
            (pg_sys::errcodes::PgSqlErrorCode::ERRCODE_DIVISION_BY_ZERO, "22012"),
            (pg_sys::errcodes::PgSqlErrorCode::ERRCODE_UNDEFINED_TABLE, "42P01"),
            (pg_sys::errcodes::PgSqlErrorCode::ERRCODE_INTERNAL_ERROR, "XX000"),
        ] {
            assert_eq!(sqlstate(code as i32), text);
        }
    }
}
