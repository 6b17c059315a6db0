//! Rights that statements of the extension's own have beside those of the current role.
//!
//! Relations in `pgtrickle_changes` belong to the owner of the catalog, and nobody else has rights on them. A
//! refresh runs as the owner of its stream table: so in the statements that the extension itself prepares,
//! and in no other that is run meanwhile, such relations are checked as the catalog's owner, as a view has
//! those checked that it reads. That is lent for what the current role owns, or is a member of the owner of:
//! the table whose changes a buffer holds, the stream table that a state belongs to. The name of the relation
//! says which, and only the catalog's owner gives names there. Whatever a statement says, it gets at nothing
//! else; and since ownership is looked at each time that a statement is run, a former owner's next statement
//! gets at nothing.
//!
//! Of the catalog itself a role that was let in may read tables, and write none. In the extension's own
//! statements it writes and locks the rows that row security lets it: those of its stream tables. For that
//! the right to write is taken out of what the statement needs, when the server has put row security into it
//! and is to plan it. The right to read is not: the statement may hold a query that somebody typed.

use pgrx::{PgSqlErrorCode, pg_sys};
use std::cell::{Cell, RefCell};
use std::ffi::{CStr, c_char, c_void};

thread_local! {
    /// The text of the extension's own that is being analysed: it is told by where it lies, which no other
    /// text shares.
    static OURS: Cell<*const c_char> = const { Cell::new(std::ptr::null()) };
    /// Rights that were lent to it.
    static LENT: RefCell<Lent> = const { RefCell::new(Lent { tables: Vec::new(), writes: false }) };
    /// How many calls of the extension's functions this process is in.
    static AT_WORK: Cell<u32> = const { Cell::new(0) };
}

/// What is called next.
static mut NEXT: pg_sys::post_parse_analyze_hook_type = None;
static mut NEXT_PLANNER: pg_sys::planner_hook_type = None;

/// Has statements looked at when they were analysed, and when they are to be planned.
pub(crate) fn watch_statements() {
    // SAFETY: the server is loading the library, in its one thread. Whoever was called before still is.
    unsafe {
        NEXT = pg_sys::post_parse_analyze_hook;
        pg_sys::post_parse_analyze_hook = Some(analysed);
        NEXT_PLANNER = pg_sys::planner_hook;
        pg_sys::planner_hook = Some(planned);
    }
}

/// The time of a call of the extension's functions.
pub(super) struct Working;

impl Working {
    pub(super) fn begin() -> Working {
        AT_WORK.set(AT_WORK.get() + 1);
        Working
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        AT_WORK.set(AT_WORK.get().saturating_sub(1));
    }
}

/// Whether trickle itself runs what is run: this process is in a call of its functions, or the program is at
/// work here, as the catalog's owner and under the lock that it takes before it alters or drops anything.
pub(crate) fn is_at_work() -> bool {
    AT_WORK.get() > 0 || is_program_at_work()
}

fn is_program_at_work() -> bool {
    let Some(keeper) = keeper() else { return false };
    // SAFETY: there is a transaction; the names outlive the calls.
    unsafe {
        let catalog = pg_sys::get_namespace_oid(c"pgtrickle".as_ptr(), true);
        let version = pg_sys::get_relname_relid(c"pgt_catalog_version".as_ptr(), catalog);
        let lock = pg_sys::RowShareLock as pg_sys::LOCKMODE;
        version != pg_sys::InvalidOid
            && pg_sys::has_privs_of_role(pg_sys::GetOuterUserId(), keeper)
            && pg_sys::CheckRelationOidLockedByMe(version, lock, false)
    }
}

/// To whom belongs what is hidden: the owner of schema `pgtrickle`. `None` where there is no such schema.
pub(crate) fn keeper() -> Option<pg_sys::Oid> {
    use pg_sys::SysCacheIdentifier::NAMESPACEOID;
    // SAFETY: there is a transaction; the row is the cache's until it is released.
    unsafe {
        let catalog = pg_sys::get_namespace_oid(c"pgtrickle".as_ptr(), true);
        let row = pg_sys::SearchSysCache1(NAMESPACEOID as i32, catalog.into());
        if row.is_null() {
            return None;
        }
        let owner = (*pg_sys::GETSTRUCT(row).cast::<pg_sys::FormData_pg_namespace>()).nspowner;
        pg_sys::ReleaseSysCache(row);
        Some(owner)
    }
}

/// Rights that were lent to a statement.
#[derive(Debug, Default)]
pub(super) struct Lent {
    /// The tables whose hidden relations it may use.
    tables: Vec<pg_sys::Oid>,
    /// Whether it may write or lock rows of the catalog.
    writes: bool,
}

impl Lent {
    /// Fails where the current role has no right any more to what was lent on account of these tables, or
    /// where the transaction is read-only.
    pub(super) fn require(&self) {
        if self.writes {
            refuse_read_only();
        }
        require(&self.tables);
    }
}

/// Fails in a read-only transaction: the server refuses writes there by the rights that a statement needs,
/// and these are taken out.
fn refuse_read_only() {
    // SAFETY: there is a transaction; the name outlives the call.
    unsafe { pg_sys::PreventCommandIfReadOnly(c"UPDATE".as_ptr()) };
}

/// The time in which a text is analysed that is the extension's own.
pub(super) struct Lending {
    outer: (*const c_char, Lent),
}

impl Lending {
    pub(super) fn to(text: *const c_char) -> Lending {
        Lending { outer: (OURS.replace(text), LENT.take()) }
    }

    /// Rights that were lent to the text.
    pub(super) fn lent(self) -> Lent {
        LENT.take()
    }
}

impl Drop for Lending {
    fn drop(&mut self) {
        OURS.set(self.outer.0);
        LENT.set(std::mem::take(&mut self.outer.1));
    }
}

fn require(tables: &[pg_sys::Oid]) {
    for table in tables {
        let Some(class) = Class::of(*table) else {
            let which = table.to_u32();
            let gone = format!("the table with the identity {which} is gone");
            pgrx::ereport!(ERROR, PgSqlErrorCode::ERRCODE_UNDEFINED_TABLE, gone);
        };
        if !class.is_own() {
            let denied = format!("permission denied for the changes of table {}", class.name);
            let code = PgSqlErrorCode::ERRCODE_INSUFFICIENT_PRIVILEGE;
            pgrx::ereport!(ERROR, code, denied, "It belongs to another role.");
        }
    }
}

/// The rights to write and to lock rows.
const WRITES: pg_sys::AclMode =
    (pg_sys::ACL_INSERT | pg_sys::ACL_UPDATE | pg_sys::ACL_DELETE) as pg_sys::AclMode;

/// What `pg_class` says of a relation.
struct Class {
    name: String,
    schema: pg_sys::Oid,
    owner: pg_sys::Oid,
    is_row_secured: bool,
}

impl Class {
    fn of(relation: pg_sys::Oid) -> Option<Class> {
        use pg_sys::SysCacheIdentifier::RELOID;
        // SAFETY: there is a transaction; the row is the cache's until it is released, and what is taken from
        // it is copied.
        unsafe {
            let row = pg_sys::SearchSysCache1(RELOID as i32, relation.into());
            if row.is_null() {
                return None;
            }
            let class = &*pg_sys::GETSTRUCT(row).cast::<pg_sys::FormData_pg_class>();
            let name = CStr::from_ptr(class.relname.data.as_ptr()).to_string_lossy().into_owned();
            let (schema, owner) = (class.relnamespace, class.relowner);
            let found = Class { name, schema, owner, is_row_secured: class.relrowsecurity };
            pg_sys::ReleaseSysCache(row);
            Some(found)
        }
    }

    /// Whether the current role may do what its owner may.
    fn is_own(&self) -> bool {
        // SAFETY: there is a transaction.
        unsafe { pg_sys::has_privs_of_role(pg_sys::GetUserId(), self.owner) }
    }
}

/// Called by the server with each statement that was analysed. An error of the hook that is called next goes
/// by as it is: nothing here would have to be undone.
unsafe extern "C-unwind" fn analysed(
    state: *mut pg_sys::ParseState,
    query: *mut pg_sys::Query,
    jumble: *mut pg_sys::JumbleState,
) {
    // SAFETY: it was set as the library was loaded, and gets what this was called with; the state is that of
    // the analysis that called, and the query was made just now, and is nobody else's yet.
    unsafe {
        if let Some(next) = NEXT {
            next(state, query, jumble);
        }
        if is_ours((*state).p_sourcetext) {
            lend_analysed(query);
        }
    }
}

/// Called by the server with each statement that is to be planned. Errors of the planner go by as above.
unsafe extern "C-unwind" fn planned(
    query: *mut pg_sys::Query,
    text: *const c_char,
    options: i32,
    params: pg_sys::ParamListInfo,
) -> *mut pg_sys::PlannedStmt {
    // SAFETY: the query is a copy for the planner; what is called next was set as the library was loaded, and
    // gets what this was called with.
    unsafe {
        if is_ours(text) {
            lend_planned(query);
        }
        match NEXT_PLANNER {
            Some(next) => next(query, text, options, params),
            None => standard_planner(query, text, options, params),
        }
    }
}

unsafe extern "C-unwind" {
    /// The server's own: what pgrx has of this name takes errors apart and makes them anew.
    fn standard_planner(
        query: *mut pg_sys::Query,
        text: *const c_char,
        options: i32,
        params: pg_sys::ParamListInfo,
    ) -> *mut pg_sys::PlannedStmt;
}

#[pgrx::pg_guard]
unsafe extern "C-unwind" fn lend_analysed(query: *mut pg_sys::Query) {
    // SAFETY: as the caller says.
    unsafe { Lender::begin(When::Analysed, query) };
}

#[pgrx::pg_guard]
unsafe extern "C-unwind" fn lend_planned(query: *mut pg_sys::Query) {
    // SAFETY: as the caller says.
    unsafe { Lender::begin(When::Planned, query) };
}

fn is_ours(text: *const c_char) -> bool {
    !text.is_null() && text == OURS.get()
}

/// The two moments at which rights are lent. Another role's rights are put in the place of the current one's
/// before row security is looked up, which goes by them; a right is taken out of those that are needed after
/// that.
#[derive(Clone, Copy, PartialEq, Eq)]
enum When {
    Analysed,
    Planned,
}

/// Lends what a query names of the hidden schema, and what it writes of the catalog.
struct Lender {
    when: When,
    catalog: pg_sys::Oid,
    hidden: pg_sys::Oid,
    keeper: pg_sys::Oid,
}

impl Lender {
    /// # Safety
    /// See [`Lender::lend`].
    unsafe fn begin(when: When, query: *mut pg_sys::Query) {
        // SAFETY: there is a transaction, and the names outlive the calls.
        let schema = |name: &CStr| unsafe { pg_sys::get_namespace_oid(name.as_ptr(), true) };
        let (catalog, hidden) = (schema(c"pgtrickle"), schema(c"pgtrickle_changes"));
        if let Some(keeper) = keeper().filter(|_| hidden != pg_sys::InvalidOid) {
            let lender = Lender { when, catalog, hidden, keeper };
            // SAFETY: as the caller says.
            unsafe { lender.lend(query) };
        }
    }

    /// # Safety
    /// A query as the analysis makes it.
    unsafe fn lend(&self, query: *mut pg_sys::Query) {
        // SAFETY: its lists hold what their names say; nodes are changed where they are.
        unsafe {
            #[cfg(feature = "pg15")]
            for entry in nodes::<pg_sys::RangeTblEntry>((*query).rtable) {
                if (*entry).rtekind == pg_sys::RTEKind::RTE_RELATION {
                    let required = &mut (*entry).requiredPerms;
                    self.lend_one((*entry).relid, required, &mut (*entry).checkAsUser);
                }
            }
            #[cfg(not(feature = "pg15"))]
            for entry in nodes::<pg_sys::RTEPermissionInfo>((*query).rteperminfos) {
                let required = &mut (*entry).requiredPerms;
                self.lend_one((*entry).relid, required, &mut (*entry).checkAsUser);
            }
            walk_query(query, (&raw const *self).cast_mut().cast());
        }
    }

    /// Changes the rights that a query needs on a relation, or whose they are to be. What a view reads has
    /// those of the view's owner.
    fn lend_one(&self, relation: pg_sys::Oid, required: &mut pg_sys::AclMode, whose: &mut pg_sys::Oid) {
        if *whose != pg_sys::InvalidOid {
            return;
        }
        let Some(class) = Class::of(relation).filter(|c| c.owner == self.keeper) else { return };
        let writes = WRITES & *required;
        let of_catalog = class.schema == self.catalog && class.is_row_secured && writes != 0;
        match self.when {
            When::Analysed if of_catalog => LENT.with_borrow_mut(|lent| lent.writes = true),
            When::Analysed if class.schema == self.hidden && Lender::is_lent(&class) => *whose = self.keeper,
            When::Planned if of_catalog => {
                refuse_read_only();
                // A role that was let in may read some column; another may read none, and is refused.
                *required = *required & !writes | pg_sys::AclMode::from(pg_sys::ACL_SELECT);
            }
            When::Analysed | When::Planned => {}
        }
    }

    /// Whether the current role may have a hidden relation checked as the catalog's owner.
    fn is_lent(class: &Class) -> bool {
        let Some(table) = table_of(&class.name) else { return false };
        let own = Class::of(table).is_some_and(|t| t.is_own());
        if own {
            LENT.with_borrow_mut(|lent| {
                if !lent.tables.contains(&table) {
                    lent.tables.push(table);
                }
            });
        }
        own
    }
}

/// The table that a hidden relation of this name is about.
fn table_of(name: &str) -> Option<pg_sys::Oid> {
    let number = |rest: &str| rest.split('_').next().unwrap_or(rest).to_owned();
    if let Some(rest) = name.strip_prefix("changes_") {
        return number(rest).parse::<u32>().ok().map(pg_sys::Oid::from);
    }
    let rest = name.strip_prefix("state_").or_else(|| name.strip_prefix("immediate_"))?;
    number(rest).parse().ok().and_then(stream_table)
}

/// The table of the stream table of this `pgt_id`.
fn stream_table(id: i64) -> Option<pg_sys::Oid> {
    // SAFETY: there is a transaction. The catalog's table is opened and closed again; a row is read while it
    // is the scan's, and its column as the type that the catalog gives it.
    unsafe {
        let catalog = pg_sys::get_namespace_oid(c"pgtrickle".as_ptr(), true);
        let oid = pg_sys::get_relname_relid(c"pgt_stream_tables".as_ptr(), catalog);
        let index = pg_sys::get_relname_relid(c"pgt_stream_tables_pkey".as_ptr(), catalog);
        let number = |name: &CStr| pg_sys::get_attnum(oid, name.as_ptr());
        let (key, relid) = (number(c"pgt_id"), number(c"pgt_relid"));
        if index == pg_sys::InvalidOid || key <= 0 || relid <= 0 {
            return None;
        }
        let lock = pg_sys::AccessShareLock as pg_sys::LOCKMODE;
        let table = pg_sys::table_open(oid, lock);
        let mut wanted = pg_sys::ScanKeyData::default();
        let equal = pg_sys::BTEqualStrategyNumber as pg_sys::StrategyNumber;
        pg_sys::ScanKeyInit(&raw mut wanted, key, equal, pg_sys::F_INT8EQ.into(), pg_sys::Datum::from(id));
        let none = std::ptr::null_mut();
        let scan = pg_sys::systable_beginscan(table, index, true, none, 1, &raw mut wanted);
        let row = pg_sys::systable_getnext(scan);
        let mut null = true;
        let found = match row.is_null() {
            true => None,
            false => {
                let value = pg_sys::heap_getattr(row, relid.into(), (*table).rd_att, &mut null);
                (!null).then(|| pg_sys::Oid::from(value.value() as u32))
            }
        };
        pg_sys::systable_endscan(scan);
        pg_sys::table_close(table, lock);
        found
    }
}

/// The elements of a list of nodes.
///
/// # Safety
/// They are of this kind.
unsafe fn nodes<T>(list: *mut pg_sys::List) -> impl Iterator<Item = *mut T> {
    // SAFETY: a list that is not null has so many elements.
    (0..unsafe { pg_sys::list_length(list) }).map(move |i| unsafe { pg_sys::list_nth(list, i) }.cast())
}

/// Called with each node of a query.
#[pgrx::pg_guard]
unsafe extern "C-unwind" fn visit(node: *mut pg_sys::Node, lender: *mut c_void) -> bool {
    // SAFETY: a node says what it is; the lender is the one that the walk began with, which does nothing
    // meanwhile.
    unsafe {
        if node.is_null() {
            return false;
        }
        if (*node).type_ == pg_sys::NodeTag::T_Query {
            (*lender.cast_const().cast::<Lender>()).lend(node.cast());
            return false;
        }
        walk_expression(node, lender)
    }
}

#[cfg(feature = "pg15")]
mod walk {
    use super::visit;
    use pgrx::pg_sys;
    use std::ffi::c_void;

    type Visit = unsafe extern "C-unwind" fn(*mut pg_sys::Node, *mut c_void) -> bool;

    unsafe extern "C-unwind" {
        fn query_tree_walker(
            query: *mut pg_sys::Query,
            visit: Visit,
            context: *mut c_void,
            flags: i32,
        ) -> bool;
        fn expression_tree_walker(node: *mut pg_sys::Node, visit: Visit, context: *mut c_void) -> bool;
    }

    /// # Safety
    /// See [`super::Lender::lend`].
    pub(super) unsafe fn walk_query(query: *mut pg_sys::Query, context: *mut c_void) {
        // SAFETY: an error of the server's goes on from here as any other.
        unsafe { pg_sys::ffi::pg_guard_ffi_boundary(|| query_tree_walker(query, visit, context, 0)) };
    }

    /// # Safety
    /// As above.
    pub(super) unsafe fn walk_expression(node: *mut pg_sys::Node, context: *mut c_void) -> bool {
        // SAFETY: as above.
        unsafe { pg_sys::ffi::pg_guard_ffi_boundary(|| expression_tree_walker(node, visit, context)) }
    }
}

#[cfg(not(feature = "pg15"))]
mod walk {
    use super::visit;
    use pgrx::pg_sys;
    use std::ffi::c_void;

    /// # Safety
    /// See [`super::Lender::lend`].
    pub(super) unsafe fn walk_query(query: *mut pg_sys::Query, context: *mut c_void) {
        // SAFETY: it is the server's own walk over a query of its own.
        unsafe { pg_sys::query_tree_walker_impl(query, Some(visit), context, 0) };
    }

    /// # Safety
    /// As above.
    pub(super) unsafe fn walk_expression(node: *mut pg_sys::Node, context: *mut c_void) -> bool {
        // SAFETY: as above.
        unsafe { pg_sys::expression_tree_walker_impl(node, Some(visit), context) }
    }
}

use walk::{walk_expression, walk_query};
