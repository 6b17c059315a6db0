//! Brings the catalog, capture and stream tables into line with DDL, in the transaction that runs the DDL.
//! Event triggers find out whether a command concerns a stream table, and call the engine only in that case.
//! The event triggers run as the superuser who created the extension. If a command takes a partition from its
//! parent, a hook reads the rows of the partition before the command. Event triggers would fire too late for
//! that. An error of the engine does not stop the user's command, since the next refresh finds the same
//! change by itself.

use crate::gucs;
use crate::inside::{attempt, done};
use crate::raise::raise;
use crate::unsafe_pg::{Acting, FollowedRemoval, ServerConnection, catalog_owner};
use pgrx::prelude::*;
use trickle_core::catalog::TableId;
use trickle_engine::{Error, Followed, Removal, Result, Trickle};

extension_sql!(
    "CREATE FUNCTION pgtrickle.on_drop() RETURNS event_trigger LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp AS $$
    DECLARE dropped oid[]; functions oid[]; resting oid[]; parents oid[];
    BEGIN
        IF pgtrickle.is_at_work() THEN
            RETURN;
        END IF;
        SELECT array_agg(o.objid) INTO dropped FROM pg_event_trigger_dropped_objects() o
        WHERE o.classid = 'pg_class'::regclass AND o.objsubid = 0
          AND (EXISTS (SELECT FROM pgtrickle.pgt_stream_tables s WHERE s.pgt_relid = o.objid)
            OR EXISTS (SELECT FROM pgtrickle.pgt_dependencies d WHERE d.source_relid = o.objid));
        IF dropped IS NOT NULL THEN
            PERFORM pgtrickle.follow_drops(dropped);
        END IF;
        SELECT array_agg(o.objid) INTO functions FROM pg_event_trigger_dropped_objects() o
        WHERE o.classid = 'pg_proc'::regclass
          AND EXISTS (SELECT FROM pgtrickle.pgt_stream_tables s WHERE s.functions @> ARRAY[o.objid]);
        SELECT array_agg(s.pgt_relid) INTO resting FROM pgtrickle.pgt_stream_tables s
        WHERE s.objects && ARRAY(SELECT format('%s %s', o.classid::regclass, o.objid) FROM pg_event_trigger_dropped_objects() o);
        IF functions IS NOT NULL OR resting IS NOT NULL THEN
            PERFORM pgtrickle.follow_alters(coalesce(resting, '{}'), coalesce(functions, '{}'));
        END IF;
        -- The server does not say whose partition or child it was.
        IF EXISTS (SELECT FROM pg_event_trigger_dropped_objects() o WHERE o.object_type IN ('table', 'foreign table') AND NOT o.is_temporary) THEN
            SELECT array_agg(DISTINCT c.oid) INTO parents FROM pgtrickle.pgt_stream_tables s
            JOIN pgtrickle.pgt_dependencies d USING (pgt_id) JOIN pg_class c ON c.oid = d.source_relid
            WHERE s.refresh_mode = 'IMMEDIATE' AND (c.relkind = 'p' OR c.relhassubclass);
            IF parents IS NOT NULL THEN
                PERFORM pgtrickle.follow_alters(parents, '{}');
            END IF;
        END IF;
    END $$;
    CREATE FUNCTION pgtrickle.on_alter() RETURNS event_trigger LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp AS $$
    DECLARE tables oid[]; functions oid[];
    BEGIN
        IF pgtrickle.is_at_work() THEN
            RETURN;
        END IF;
        WITH RECURSIVE altered(oid) AS (
            SELECT o.objid FROM pg_event_trigger_ddl_commands() o WHERE o.classid = 'pg_class'::regclass
            UNION SELECT c.oid FROM pg_event_trigger_ddl_commands() o JOIN pg_class c ON c.relnamespace = o.objid
                WHERE o.classid = 'pg_namespace'::regclass
            UNION SELECT h.inhparent FROM altered a JOIN pg_inherits h ON h.inhrelid = a.oid
        )
        SELECT array_agg(a.oid) INTO tables FROM altered a
        WHERE EXISTS (SELECT FROM pgtrickle.pgt_stream_tables s WHERE s.pgt_relid = a.oid)
           OR EXISTS (SELECT FROM pgtrickle.pgt_dependencies d WHERE d.source_relid = a.oid);
        IF TG_TAG IN ('GRANT', 'REVOKE') THEN
            -- The server does not say on what.
            SELECT array_agg(d.source_relid) INTO tables FROM pgtrickle.pgt_stream_tables s
            JOIN pgtrickle.pgt_dependencies d USING (pgt_id) WHERE s.refresh_mode = 'IMMEDIATE';
        END IF;
        -- Attributes of composite types, and columns of tables whose rows are values, are altered as columns of relations.
        SELECT tables || array_agg(s.pgt_relid) INTO tables FROM pgtrickle.pgt_stream_tables s
        WHERE EXISTS (SELECT FROM pg_event_trigger_ddl_commands() o JOIN pg_type y
            ON o.classid = 'pg_type'::regclass AND y.oid = o.objid OR o.classid = 'pg_class'::regclass AND y.typrelid = o.objid
            WHERE y.oid = ANY (s.types));
        SELECT tables || array_agg(s.pgt_relid) INTO tables FROM pgtrickle.pgt_stream_tables s
        WHERE s.objects && ARRAY(SELECT format('%s %s', o.classid::regclass, o.objid) FROM pg_event_trigger_ddl_commands() o);
        SELECT array_agg(o.objid) INTO functions FROM pg_event_trigger_ddl_commands() o
        WHERE o.classid = 'pg_proc'::regclass
          AND EXISTS (SELECT FROM pgtrickle.pgt_stream_tables s WHERE s.functions @> ARRAY[o.objid]);
        IF tables IS NOT NULL OR functions IS NOT NULL THEN
            PERFORM pgtrickle.follow_alters(coalesce(tables, '{}'), coalesce(functions, '{}'));
        END IF;
        -- Notes partitions and children that were not followed now, also where nobody reads the table: rows that are written to them
        -- through it are captured.
        INSERT INTO pgtrickle.pgt_marks (source_relid, reason)
            SELECT b.source_relid, 'it has partitions or children that its triggers were not made for' FROM pgtrickle.pgt_buffers b
            WHERE b.source_relid = ANY (tables) AND b.capture = 'ON' AND NOT pgtrickle.children(b.source_relid) <@ b.children;
    END $$;",
    name = "follow",
    requires = [pgtrickle::is_at_work, pgtrickle::follow_drops, pgtrickle::follow_alters],
);

#[pg_schema]
mod pgtrickle {
    use pgrx::prelude::*;

    /// Whether trickle itself runs the current DDL. Event triggers follow all other DDL.
    #[pg_extern(volatile)]
    fn is_at_work() -> bool {
        crate::unsafe_pg::is_at_work()
    }

    /// Follows dropped objects; called by an event trigger.
    #[pg_extern]
    fn follow_drops(dropped: Vec<pg_sys::Oid>) {
        super::follow_drops(&super::numbers(&dropped));
    }

    /// Follows altered objects; called by an event trigger.
    #[pg_extern]
    fn follow_alters(tables: Vec<pg_sys::Oid>, functions: Vec<pg_sys::Oid>) {
        super::follow_alters(&super::numbers(&tables), &super::numbers(&functions));
    }
}

fn numbers(oids: &[pg_sys::Oid]) -> Vec<u32> {
    oids.iter().map(|o| o.to_u32()).collect()
}

fn follow_drops(dropped: &[u32]) {
    let told = quietly(async |t| t.follow_drops(dropped).await);
    told.unwrap_or_default().iter().for_each(|t| pgrx::notice!("{t}"));
}

fn follow_alters(tables: &[u32], functions: &[u32]) {
    let broken = quietly(async |t| t.altered(tables, functions).await);
    for (id, owner) in broken.unwrap_or_default() {
        if let Some(Some(why)) = as_owner(id, owner) {
            pgrx::warning!("{why}");
        }
    }
}

/// Plans a stream table again, as its owner, since another role may have altered the source.
fn as_owner(id: TableId, owner: u32) -> Option<Option<String>> {
    let _acting = Acting::begin(owner);
    quietly(async |t| t.follow(id).await)
}

/// A command that takes partitions from captured tables. The buffers of these tables have the rows of the
/// partitions as deleted rows.
pub(crate) struct CapturedRemoval {
    removal: Removal,
    followed: Vec<Followed>,
}

impl FollowedRemoval for CapturedRemoval {
    /// Follows a command that is about to take partitions from their parents. Returns `None` where no
    /// captured table has the rows of the partitions as changes. An error about a lock is raised for the
    /// user, since the command would otherwise wait for the same lock once more.
    fn begin(removal: Removal) -> Option<CapturedRemoval> {
        let _acting = Acting::begin(catalog_owner()?.to_u32());
        let work = async |t: &mut Trickle<ServerConnection>| t.partitions_leave(&removal).await;
        let followed = match done(async { attempt(ServerConnection::enter(), gucs::settings(), work).await })
        {
            Ok(followed) => followed,
            Err(e) if matches!(e.sqlstate(), Some("55P03" | "40P01" | "57014")) => raise(&e),
            Err(e) => {
                tell(&e);
                return None;
            }
        };
        (!followed.is_empty()).then_some(CapturedRemoval { removal, followed })
    }

    /// Ends, after a command, the capture that began before the command. An error makes the command fail,
    /// since the buffers have rows as deleted, and not even a mark could be left.
    fn end(&self) {
        let Some(owner) = catalog_owner() else { return };
        let _acting = Acting::begin(owner.to_u32());
        let work =
            async |t: &mut Trickle<ServerConnection>| t.partitions_left(&self.followed, &self.removal).await;
        if let Err(e) = done(async { attempt(ServerConnection::enter(), gucs::settings(), work).await }) {
            raise(&e);
        }
    }
}

/// Runs `work`, and turns its error into a warning, so that the user's command goes on. Errors of input,
/// which say that the catalog is not usable, are not reported here: every other call raises them.
fn quietly<T>(work: impl AsyncFnOnce(&mut Trickle<ServerConnection>) -> Result<T>) -> Option<T> {
    done(async { attempt(ServerConnection::enter(), gucs::settings(), work).await }).inspect_err(tell).ok()
}

fn tell(e: &Error) {
    if !e.is_input() {
        pgrx::warning!("stream tables follow this at their next refresh: {}", e.message());
    }
}
