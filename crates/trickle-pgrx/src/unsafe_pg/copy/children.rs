//! Looks for partitions and children of a source that its triggers were not made for. A statement may write
//! such a table through the source, and no trigger fires when the table is dropped or detached.

use crate::unsafe_pg::rights::Class;
use pgrx::pg_sys;
use trickle_core::cdc::CopyScript;

unsafe extern "C-unwind" {
    /// Returns the children that a table has in the catalog at the moment.
    fn find_inheritance_children(parent: pg_sys::Oid, lock: pg_sys::LOCKMODE) -> *mut pg_sys::List;
    /// Returns the tables that are above a partition in the catalog at the moment; none for a table that is
    /// no partition.
    fn get_partition_ancestors(relation: pg_sys::Oid) -> *mut pg_sys::List;
}

/// Whether the source of a script has partitions or children that the script does not know. Takes no lock, so
/// a writer of one partition does not wait for a command on another.
pub(super) fn has_unknown(says: &CopyScript) -> bool {
    let unknown = |child: &pg_sys::Oid| says.known.binary_search(&child.to_u32()).is_err();
    // Temporary children do not count. Each belongs to one session, whose statements leave a mark of their
    // own.
    let permanent = |child: &pg_sys::Oid| Class::of(*child).is_some_and(|c| !c.is_temporary);
    says.parents.iter().any(|parent| {
        let parent = pg_sys::Oid::from(*parent);
        // SAFETY: there is a transaction; the server's function accepts the oid of a table that is gone, and
        // returns 0 for it.
        let kind = unsafe { pg_sys::get_rel_relkind(parent) as u8 };
        // SAFETY: there is a transaction, and the table exists.
        unsafe {
            if kind == pg_sys::RELKIND_PARTITIONED_TABLE {
                partitions(parent).iter().any(unknown)
            } else {
                kind != 0 && children(parent).iter().any(|c| unknown(c) && permanent(c))
            }
        }
    })
}

/// Whether the table that was changed is neither the source of a script nor a partition of it at any level.
/// The source must have partitions. The answer holds for this moment only, since the function takes no lock.
pub(super) fn is_former_partition(data: &pg_sys::TriggerData, says: &CopyScript) -> bool {
    let source = pg_sys::Oid::from(says.source);
    // SAFETY: the server has opened the changed table for as long as its trigger runs; an error of the server
    // passes through here like any other error; the list holds oids.
    unsafe {
        let changed = (*data.tg_relation).rd_id;
        changed != source && {
            let above = pg_sys::ffi::pg_guard_ffi_boundary(|| get_partition_ancestors(changed));
            !pg_sys::list_member_oid(above, source)
        }
    }
}

/// Returns the partitions of a table to which the server routes rows at the moment.
///
/// # Safety
/// There must be a transaction, and the table must be partitioned.
unsafe fn partitions(parent: pg_sys::Oid) -> Vec<pg_sys::Oid> {
    // SAFETY: the relation stays open while its description is read; `oids` has `nparts` elements. The server
    // reads the catalog as it is now, and tries once more if a partition comes at the same moment.
    unsafe {
        let relation = pg_sys::RelationIdGetRelation(parent);
        if relation.is_null() {
            return Vec::new();
        }
        let found = pg_sys::RelationGetPartitionDesc(relation, true);
        let count = usize::try_from((*found).nparts).unwrap_or(0);
        let oids = if count == 0 { &[][..] } else { std::slice::from_raw_parts((*found).oids, count) };
        let oids = oids.to_vec();
        pg_sys::RelationClose(relation);
        oids
    }
}

/// Returns the children by inheritance.
///
/// # Safety
/// There must be a transaction.
unsafe fn children(parent: pg_sys::Oid) -> Vec<pg_sys::Oid> {
    // SAFETY: an error of the server passes through here like any other error; the list holds oids.
    unsafe {
        let lock = pg_sys::NoLock as pg_sys::LOCKMODE;
        let list = pg_sys::ffi::pg_guard_ffi_boundary(|| find_inheritance_children(parent, lock));
        (0..pg_sys::list_length(list)).map(|i| pg_sys::list_nth_oid(list, i)).collect()
    }
}
