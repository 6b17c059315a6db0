//! A database of the release before: what is captured there goes on. Catches an upgrade that leaves trigger functions of the
//! earlier version at work, or loses what they captured.

use crate::support::{assert_equal, count, create, each_server, open, refresh, run};
use trickle_client::schema::VERSION;
use trickle_client::{NewStreamTable, RefreshMode};

/// Capture of `public.t` as version 0.2.0 made it, in a catalog of version 2.
const CAPTURED: &str = "
DO $do$
DECLARE source oid := 'public.t'::regclass;
BEGIN
    EXECUTE format($s$CREATE TABLE pgtrickle_changes.changes_%1$s_1 (xid xid8 NOT NULL DEFAULT pg_current_xact_id(), w smallint NOT NULL,
        id integer, v integer, word varchar(9))$s$, source);
    EXECUTE format($s$CREATE VIEW pgtrickle_changes.changes_%1$s (xid, w, cmin, id, v, word) AS
        SELECT s.xid, s.w, s.cmin, s.id, s.v, s.word FROM pgtrickle_changes.changes_%1$s_1 s$s$, source);
    EXECUTE format($s$CREATE FUNCTION pgtrickle_changes.capture_%1$s_1_insert() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
        SET search_path = pg_catalog, pg_temp AS $f$ BEGIN
        INSERT INTO pgtrickle_changes.changes_%1$s_1 (w, id, v, word) SELECT 1::smallint, r.id, r.v, r.word FROM trickle_new r;
        RETURN NULL; END $f$$s$, source);
    EXECUTE format($s$CREATE TRIGGER trickle_capture_%1$s_insert AFTER INSERT ON public.t REFERENCING NEW TABLE AS trickle_new
        EXECUTE FUNCTION pgtrickle_changes.capture_%1$s_1_insert()$s$, source);
    EXECUTE format('ALTER TABLE public.t ENABLE ALWAYS TRIGGER trickle_capture_%1$s_insert', source);
    UPDATE pgtrickle.pgt_buffers SET capture = 'ON', generation = 1, segments = '[{\"number\": 1, \"columns\": [1, 2, 3]}]',
        schema_fingerprint = pgtrickle.fingerprint(source), triggers_fingerprint = pgtrickle.triggers_fingerprint(source)
        WHERE source_relid = source;
    UPDATE pgtrickle.pgt_stream_tables SET needs_reinit = false, reinit_reason = NULL WHERE refresh_mode <> 'IMMEDIATE';
END $do$";

const GUARDED: &str = "SELECT count(*) FROM pg_proc WHERE pronamespace = 'pgtrickle_changes'::regnamespace \
    AND prosrc LIKE '%pgtrickle.misfit(%'";

#[test]
fn an_upgrade_renews_capture_and_loses_no_change() {
    each_server(async |db| {
        let mut t = open(&db).await;
        let w = db.session().await;
        run(
            &w,
            "CREATE TABLE t (id int PRIMARY KEY, v int, word varchar(9)); INSERT INTO t VALUES (1, 1, 'one')",
        )
        .await;
        create(&mut t, "kept", "SELECT id, v, word FROM t").await;
        let new =
            NewStreamTable::new(crate::support::name("at_once"), "SELECT v, count(*) AS n FROM t GROUP BY v");
        t.create(&NewStreamTable { mode: Some(RefreshMode::Immediate), ..new }).await.unwrap();
        refresh(&mut t, "kept").await;
        assert_eq!(t.migrate(2).await.unwrap(), Some(VERSION));
        run(&w, "INSERT INTO t VALUES (2, 2, 'two'); DELETE FROM t WHERE id = 2").await;
        let triggers = "SELECT count(*) FROM pg_trigger WHERE tgrelid = 't'::regclass AND NOT tgisinternal";
        assert_eq!(count(&w, triggers).await, 0, "no trigger is left that the earlier version does not know");
        run(&w, CAPTURED).await;
        run(&w, "INSERT INTO t VALUES (3, 3, 'three')").await;
        assert_eq!(t.migrate(VERSION).await.unwrap(), Some(2));
        assert!(count(&w, GUARDED).await > 0);
        // The segment takes what the column takes by now.
        run(&w, "INSERT INTO t VALUES (4, 4, 'four')").await;
        let done = refresh(&mut t, "kept").await;
        assert_eq!(
            (done[0].report.action.name(), done[0].report.delta_rows),
            ("DIFFERENTIAL", 2),
            "{done:?}"
        );
        assert_equal(&mut t, "kept").await;
        refresh(&mut t, "at_once").await;
        run(&w, "INSERT INTO t VALUES (5, 4, 'five')").await;
        assert_equal(&mut t, "at_once").await;
    });
}
