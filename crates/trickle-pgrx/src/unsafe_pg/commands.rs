//! Commands that take the rows of a partition from its parent: DROP TABLE, DETACH PARTITION and TRUNCATE. A
//! hook sees them before the server runs them, while the rows can still be read.

use super::rights::{Class, is_at_work, nodes};
use pgrx::pg_sys;
use std::ffi::c_char;
use trickle_engine::{Leaving, Removal};

/// The hook that was installed before. The hook of this library calls it.
static mut NEXT: pg_sys::ProcessUtility_hook_type = None;

/// The work before and after a command that takes partitions from their parents. The value holds the facts
/// that the work after the command needs.
pub(crate) trait FollowedRemoval: Sized + 'static {
    /// Does the work before the command. Returns `None` where no work is to be done after the command. The
    /// caller has checked that the user may run the command.
    fn begin(removal: Removal) -> Option<Self>;
    /// Does the work after the command.
    fn end(&self);
}

/// Installs the hook that looks at each command. `F` follows the commands that take partitions.
pub(crate) fn watch_commands<F: FollowedRemoval>() {
    // SAFETY: the server is loading the library, in its one thread. A hook that was installed before is still
    // called.
    unsafe {
        NEXT = pg_sys::ProcessUtility_hook;
        pg_sys::ProcessUtility_hook = Some(command::<F>);
    }
}

unsafe extern "C-unwind" {
    /// Runs a command; this is the server's own function. It is declared here, since the function of this
    /// name in pgrx would take errors apart and build new ones.
    fn standard_ProcessUtility(
        statement: *mut pg_sys::PlannedStmt,
        text: *const c_char,
        read_only_tree: bool,
        context: pg_sys::ProcessUtilityContext::Type,
        params: pg_sys::ParamListInfo,
        environment: *mut pg_sys::QueryEnvironment,
        receiver: *mut pg_sys::DestReceiver,
        completion: *mut pg_sys::QueryCompletion,
    );
}

/// Runs a command; called by the server. Errors of the command pass through.
unsafe extern "C-unwind" fn command<F: FollowedRemoval>(
    statement: *mut pg_sys::PlannedStmt,
    text: *const c_char,
    read_only_tree: bool,
    context: pg_sys::ProcessUtilityContext::Type,
    params: pg_sys::ParamListInfo,
    environment: *mut pg_sys::QueryEnvironment,
    receiver: *mut pg_sys::DestReceiver,
    completion: *mut pg_sys::QueryCompletion,
) {
    // SAFETY: the next hook was set as the library was loaded, and gets the arguments of this call. The
    // command belongs to the server, which keeps it until the call ends.
    unsafe {
        let followed = before::<F>(statement);
        let next = NEXT.unwrap_or(standard_ProcessUtility);
        next(statement, text, read_only_tree, context, params, environment, receiver, completion);
        after(followed);
    }
}

/// Does the work before the command. Returns null where no work is to be done after the command. Otherwise
/// the value belongs to the current memory context, which frees the value even if the command raises an
/// error.
#[pgrx::pg_guard]
unsafe extern "C-unwind" fn before<F: FollowedRemoval>(statement: *mut pg_sys::PlannedStmt) -> *mut F {
    // SAFETY: the server calls the hook with a valid statement.
    let found = unsafe { partitions_of((*statement).utilityStmt) };
    match found.and_then(F::begin) {
        Some(followed) => pgrx::PgMemoryContexts::CurrentMemoryContext.leak_and_drop_on_delete(followed),
        None => std::ptr::null_mut(),
    }
}

/// Does the work after the command. The value is null where there is no such work.
#[pgrx::pg_guard]
unsafe extern "C-unwind" fn after<F: FollowedRemoval>(followed: *mut F) {
    // SAFETY: the value was made by `before` in this call of the hook, in a memory context that lives as long
    // as the command.
    if let Some(followed) = unsafe { followed.as_ref() } {
        followed.end();
    }
}

/// Returns the partitions whose rows a command takes, where the current role may run the command. For any
/// other role the server may refuse the command, and no table may be locked before that refusal.
///
/// # Safety
/// The node must be a command as the parser makes it.
unsafe fn partitions_of(node: *mut pg_sys::Node) -> Option<Removal> {
    // SAFETY: the tag of a node tells its type. The parser fills each of these lists with nodes of one
    // type, and this function reads them as that type.
    unsafe {
        let mut parent = std::ptr::null_mut();
        let (names, how): (Vec<*mut pg_sys::RangeVar>, Leaving) = match (*node).type_ {
            pg_sys::NodeTag::T_DropStmt => {
                let drop = node.cast::<pg_sys::DropStmt>();
                if (*drop).removeType != pg_sys::ObjectType::OBJECT_TABLE {
                    return None;
                }
                let named = nodes::<pg_sys::List>((*drop).objects);
                (named.map(|name| pg_sys::makeRangeVarFromNameList(name)).collect(), Leaving::Dropped)
            }
            pg_sys::NodeTag::T_TruncateStmt => {
                let truncate = node.cast::<pg_sys::TruncateStmt>();
                (nodes::<pg_sys::RangeVar>((*truncate).relations).collect(), Leaving::Emptied)
            }
            pg_sys::NodeTag::T_AlterTableStmt => {
                let alter = node.cast::<pg_sys::AlterTableStmt>();
                parent = (*alter).relation;
                let steps = nodes::<pg_sys::AlterTableCmd>((*alter).cmds);
                let detached = steps.filter_map(|step| detached(step));
                (detached.collect(), Leaving::Detached)
            }
            _ => return None,
        };
        if names.is_empty() || !may_follow() {
            return None;
        }
        // The parent is looked up first, as the server does it.
        let parent = (!parent.is_null()).then(|| named(parent));
        if parent.is_some_and(|p| !is_own(p)) {
            return None;
        }
        let may = |relation: pg_sys::Oid| match how {
            Leaving::Dropped | Leaving::Detached => is_own(relation),
            Leaving::Emptied => may_truncate(relation),
        };
        let partitions = names.iter().map(|name| named(*name));
        let partitions = partitions.filter(|p| pg_sys::get_rel_relispartition(*p) && may(*p));
        let partitions: Vec<u32> = partitions.map(|p| p.to_u32()).collect();
        let (parent, alone) = (parent.map(|p| p.to_u32()), names.len() == 1);
        (!partitions.is_empty()).then_some(Removal { partitions, how, parent, alone })
    }
}

/// Returns the partition that a step of ALTER TABLE detaches, unless it detaches the partition CONCURRENTLY.
///
/// # Safety
/// The step must be as the parser makes it.
unsafe fn detached(step: *mut pg_sys::AlterTableCmd) -> Option<*mut pg_sys::RangeVar> {
    // SAFETY: the definition of such a step names a partition.
    unsafe {
        if (*step).subtype != pg_sys::AlterTableType::AT_DetachPartition {
            return None;
        }
        let what = (*step).def.cast::<pg_sys::PartitionCmd>();
        (!(*what).concurrent).then_some((*what).name)
    }
}

/// Whether the hook handles the current command. The database must have the extension, the transaction must
/// be allowed to write, and trickle itself must not run the command.
fn may_follow() -> bool {
    // SAFETY: the variable belongs to this process, and the name outlives the call.
    unsafe {
        pg_sys::IsTransactionState()
            && !pg_sys::XactReadOnly
            && pg_sys::get_extension_oid(c"pg_trickle".as_ptr(), true) != pg_sys::InvalidOid
            && !is_at_work()
    }
}

/// Returns the relation of this name, as the command will find it; 0 where there is none.
///
/// # Safety
/// The name must be as the parser makes it.
unsafe fn named(name: *mut pg_sys::RangeVar) -> pg_sys::Oid {
    // SAFETY: there is a transaction.
    unsafe {
        let lock = pg_sys::NoLock as pg_sys::LOCKMODE;
        let missing_ok = pg_sys::RVROption::RVR_MISSING_OK;
        pg_sys::RangeVarGetRelidExtended(name, lock, missing_ok, None, std::ptr::null_mut())
    }
}

/// Whether the current role has the rights of the relation's owner.
fn is_own(relation: pg_sys::Oid) -> bool {
    Class::of(relation).is_some_and(|c| c.is_own())
}

/// Whether the current role may empty the relation.
fn may_truncate(relation: pg_sys::Oid) -> bool {
    let right = pg_sys::ACL_TRUNCATE as pg_sys::AclMode;
    // SAFETY: there is a transaction. If the relation was dropped, the server's own error passes through
    // here.
    Class::of(relation).is_some()
        && unsafe { pg_sys::pg_class_aclcheck(relation, pg_sys::GetUserId(), right) }
            == pg_sys::AclResult::ACLCHECK_OK
}
