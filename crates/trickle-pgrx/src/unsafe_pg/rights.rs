//! Rights of the extension's own statements, beside the rights of the current role.
//!
//! Relations in `pgtrickle_changes` belong to the owner of the catalog, and no other role has rights on them.
//! A refresh runs as the owner of its stream table. So in the statements that the extension itself prepares,
//! access to such relations is checked with the rights of the catalog's owner. In the same way, access to a
//! view's relations is checked with the rights of the view's owner. Other statements that run meanwhile are
//! checked as usual.
//!
//! Each hidden relation belongs to a table: a buffer to the table whose changes it holds, a state to its
//! stream table. The right is lent only to the owner of that table, and to members of that owner. The name of
//! the hidden relation says to which table the relation belongs, and only the catalog's owner gives names in
//! that schema. So a statement can use no other hidden relation, whatever its text is. Ownership is checked
//! each time that a statement runs, so the next statement of a former owner is refused.
//!
//! A role that `pgtrickle.grant_to` has let in may read the tables of the catalog itself. The only write that
//! its own rights allow is adding marks to `pgt_marks`. In the extension's own statements such a role also
//! writes and locks the rows of its own stream tables, as row security allows. For that, the right to write
//! is removed from the rights that the statement needs. The removal comes after the server has added row
//! security to the statement, and before the planning. The right to read is not removed, since the statement
//! may contain a query that a user typed.

use pgrx::{PgSqlErrorCode, pg_sys};
use std::cell::{Cell, RefCell};
use std::ffi::{CStr, c_char, c_void};

thread_local! {
    /// The text of the extension's own statement that is being analysed. The address identifies the text,
    /// since no other text has the same address.
    static OURS: Cell<*const c_char> = const { Cell::new(std::ptr::null()) };
    /// Rights that were lent to that statement.
    static LENT: RefCell<Lent> = const { RefCell::new(Lent { tables: Vec::new(), writes: false }) };
    /// The number of open calls of the extension's functions in this process.
    static AT_WORK: Cell<u32> = const { Cell::new(0) };
}

/// The hooks that were installed before. The hooks of this library call them.
static mut NEXT: pg_sys::post_parse_analyze_hook_type = None;
static mut NEXT_PLANNER: pg_sys::planner_hook_type = None;

/// Installs the hooks that look at each statement after its analysis and before its planning.
pub(crate) fn watch_statements() {
    // SAFETY: the server is loading the library, in its one thread. Hooks that were installed before are
    // still called.
    unsafe {
        NEXT = pg_sys::post_parse_analyze_hook;
        pg_sys::post_parse_analyze_hook = Some(analysed);
        NEXT_PLANNER = pg_sys::planner_hook;
        pg_sys::planner_hook = Some(planned);
    }
}

/// A guard that marks a call of the extension's functions as open.
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

/// Whether trickle itself runs the current statement. Either this process is in a call of trickle's
/// functions, or the program is at work here. The program acts as the catalog's owner, and holds the lock
/// that it takes before it alters or drops anything.
pub(crate) fn is_at_work() -> bool {
    AT_WORK.get() > 0 || is_program_at_work()
}

fn is_program_at_work() -> bool {
    let Some(owner) = catalog_owner() else { return false };
    // SAFETY: there is a transaction; the names outlive the calls.
    unsafe {
        let catalog = pg_sys::get_namespace_oid(c"pgtrickle".as_ptr(), true);
        let version = pg_sys::get_relname_relid(c"pgt_catalog_version".as_ptr(), catalog);
        let lock = pg_sys::RowShareLock as pg_sys::LOCKMODE;
        version != pg_sys::InvalidOid
            && pg_sys::has_privs_of_role(pg_sys::GetOuterUserId(), owner)
            && pg_sys::CheckRelationOidLockedByMe(version, lock, false)
    }
}

/// Returns the owner of schema `pgtrickle`, to whom all hidden objects belong; `None` where there is no such
/// schema.
pub(crate) fn catalog_owner() -> Option<pg_sys::Oid> {
    use pg_sys::SysCacheIdentifier::NAMESPACEOID;
    // SAFETY: there is a transaction; the row belongs to the cache until it is released.
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

/// Rights that are lent to a statement.
#[derive(Debug, Default)]
pub(super) struct Lent {
    /// The tables whose hidden relations the statement may use.
    tables: Vec<pg_sys::Oid>,
    /// Whether the statement may write or lock rows of the catalog.
    writes: bool,
}

impl Lent {
    /// Fails if the current role may no longer use the hidden relations of these tables. Fails also if the
    /// statement writes the catalog in a read-only transaction.
    pub(super) fn require(&self) {
        if self.writes {
            refuse_read_only();
        }
        require(&self.tables);
    }
}

/// Fails in a read-only transaction. The server itself would refuse writes there by the rights that a
/// statement needs, but those rights are removed.
fn refuse_read_only() {
    // SAFETY: there is a transaction; the name outlives the call.
    unsafe { pg_sys::PreventCommandIfReadOnly(c"UPDATE".as_ptr()) };
}

/// A guard: as long as the guard lives, statements with this text count as the extension's own.
pub(super) struct Lending {
    outer: (*const c_char, Lent),
}

impl Lending {
    pub(super) fn to(text: *const c_char) -> Lending {
        Lending { outer: (OURS.replace(text), LENT.take()) }
    }

    /// Returns the rights that were lent to the text.
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

/// Properties of a relation from `pg_class`.
pub(super) struct Class {
    name: String,
    schema: pg_sys::Oid,
    owner: pg_sys::Oid,
    is_row_secured: bool,
    pub(super) is_temporary: bool,
}

impl Class {
    pub(super) fn of(relation: pg_sys::Oid) -> Option<Class> {
        use pg_sys::SysCacheIdentifier::RELOID;
        // SAFETY: there is a transaction. The row belongs to the cache until it is released, and the values
        // taken from it are copied.
        unsafe {
            let row = pg_sys::SearchSysCache1(RELOID as i32, relation.into());
            if row.is_null() {
                return None;
            }
            let class = &*pg_sys::GETSTRUCT(row).cast::<pg_sys::FormData_pg_class>();
            let name = CStr::from_ptr(class.relname.data.as_ptr()).to_string_lossy().into_owned();
            let (schema, owner) = (class.relnamespace, class.relowner);
            let is_temporary = class.relpersistence as u8 == pg_sys::RELPERSISTENCE_TEMP;
            let found = Class { name, schema, owner, is_row_secured: class.relrowsecurity, is_temporary };
            pg_sys::ReleaseSysCache(row);
            Some(found)
        }
    }

    /// Whether the current role has the rights of the relation's owner.
    pub(super) fn is_own(&self) -> bool {
        // SAFETY: there is a transaction.
        unsafe { pg_sys::has_privs_of_role(pg_sys::GetUserId(), self.owner) }
    }
}

/// Lends rights to a statement that was analysed; called by the server. An error of the next hook passes
/// through, since nothing needs to be undone here.
unsafe extern "C-unwind" fn analysed(
    state: *mut pg_sys::ParseState,
    query: *mut pg_sys::Query,
    jumble: *mut pg_sys::JumbleState,
) {
    // SAFETY: the next hook was set as the library was loaded, and gets the arguments of this call. The state
    // belongs to the caller, which analyses the statement. The caller has just made the query, and no other
    // code has a pointer to the query yet.
    unsafe {
        if let Some(next) = NEXT {
            next(state, query, jumble);
        }
        if is_ours((*state).p_sourcetext) {
            lend_analysed(query);
        }
    }
}

/// Removes rights from a statement that is about to be planned; called by the server. Errors of the planner
/// pass through.
unsafe extern "C-unwind" fn planned(
    query: *mut pg_sys::Query,
    text: *const c_char,
    options: i32,
    params: pg_sys::ParamListInfo,
) -> *mut pg_sys::PlannedStmt {
    // SAFETY: the query is a copy for the planner. The next hook was set as the library was loaded, and gets
    // the arguments of this call.
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
    /// Plans a query; this is the server's own function. It is declared here, since the function of this name
    /// in pgrx would take errors apart and build new ones.
    fn standard_planner(
        query: *mut pg_sys::Query,
        text: *const c_char,
        options: i32,
        params: pg_sys::ParamListInfo,
    ) -> *mut pg_sys::PlannedStmt;
}

#[pgrx::pg_guard]
unsafe extern "C-unwind" fn lend_analysed(query: *mut pg_sys::Query) {
    // SAFETY: the caller passes a query as the analysis makes it.
    unsafe { Lender::begin(When::Analysed, query) };
}

#[pgrx::pg_guard]
unsafe extern "C-unwind" fn lend_planned(query: *mut pg_sys::Query) {
    // SAFETY: the caller passes a query as the analysis makes it.
    unsafe { Lender::begin(When::Planned, query) };
}

fn is_ours(text: *const c_char) -> bool {
    !text.is_null() && text == OURS.get()
}

/// The two moments at which rights are lent. After the analysis, the role that is checked is replaced, since
/// row security depends on that role and is looked up later. Before the planning, a right is removed from
/// those that the statement needs, since row security depends on that right and was looked up before.
#[derive(Clone, Copy, PartialEq, Eq)]
enum When {
    Analysed,
    Planned,
}

/// The lender of rights to a query: on the hidden relations that it names, and on the catalog's tables that
/// it writes.
struct Lender {
    when: When,
    catalog: pg_sys::Oid,
    hidden: pg_sys::Oid,
    catalog_owner: pg_sys::Oid,
}

impl Lender {
    /// # Safety
    /// See [`Lender::lend`].
    unsafe fn begin(when: When, query: *mut pg_sys::Query) {
        // SAFETY: there is a transaction, and the names outlive the calls.
        let schema = |name: &CStr| unsafe { pg_sys::get_namespace_oid(name.as_ptr(), true) };
        let (catalog, hidden) = (schema(c"pgtrickle"), schema(c"pgtrickle_changes"));
        if let Some(owner) = catalog_owner().filter(|_| hidden != pg_sys::InvalidOid) {
            let lender = Lender { when, catalog, hidden, catalog_owner: owner };
            // SAFETY: the caller passes a query as the analysis makes it.
            unsafe { lender.lend(query) };
        }
    }

    /// Lends rights on the relations of a query and its subqueries.
    ///
    /// # Safety
    /// The query must be as the analysis makes it.
    unsafe fn lend(&self, query: *mut pg_sys::Query) {
        // SAFETY: the lists hold nodes of the kinds that their names say; nodes are changed in place.
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

    /// Changes the rights that a query needs on a relation, or the role whose rights count. A view's
    /// relations are left alone: the rights of the view's owner count for them.
    fn lend_one(&self, relation: pg_sys::Oid, required: &mut pg_sys::AclMode, whose: &mut pg_sys::Oid) {
        if *whose != pg_sys::InvalidOid {
            return;
        }
        let Some(class) = Class::of(relation).filter(|c| c.owner == self.catalog_owner) else { return };
        let writes = WRITES & *required;
        let of_catalog = class.schema == self.catalog && class.is_row_secured && writes != 0;
        match self.when {
            When::Analysed if of_catalog => LENT.with_borrow_mut(|lent| lent.writes = true),
            When::Analysed if class.schema == self.hidden && Lender::lend_if_owned(&class) => {
                *whose = self.catalog_owner
            }
            When::Planned if of_catalog => {
                refuse_read_only();
                // The right to read replaces the right to write. A role that was let in may read some column.
                // A role that was not let in may read no column, and is refused.
                *required = *required & !writes | pg_sys::AclMode::from(pg_sys::ACL_SELECT);
            }
            When::Analysed | When::Planned => {}
        }
    }

    /// Notes the table of a hidden relation among the lent rights if the table belongs to the current role.
    /// Returns whether access to the relation is then checked with the rights of the catalog's owner.
    fn lend_if_owned(class: &Class) -> bool {
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

/// Returns the table that a hidden relation of this name belongs to.
fn table_of(name: &str) -> Option<pg_sys::Oid> {
    let number = |rest: &str| rest.split('_').next().unwrap_or(rest).to_owned();
    if let Some(rest) = name.strip_prefix("changes_") {
        return number(rest).parse::<u32>().ok().map(pg_sys::Oid::from);
    }
    let rest = name.strip_prefix("state_").or_else(|| name.strip_prefix("immediate_"))?;
    number(rest).parse().ok().and_then(stream_table)
}

/// Returns the table of the stream table with this `pgt_id`.
fn stream_table(id: i64) -> Option<pg_sys::Oid> {
    // SAFETY: there is a transaction. The catalog's table is opened and closed again. A row is read while it
    // belongs to the scan, and its column is read as the type that the catalog gives it.
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

/// Returns the elements of a list of nodes.
///
/// # Safety
/// The elements must be of the type `T`.
pub(super) unsafe fn nodes<T>(list: *mut pg_sys::List) -> impl Iterator<Item = *mut T> {
    // SAFETY: a list that is not null has `list_length` elements.
    (0..unsafe { pg_sys::list_length(list) }).map(move |i| unsafe { pg_sys::list_nth(list, i) }.cast())
}

/// Visits a node of a query. Lends rights to a subquery, and visits the parts of an expression.
#[pgrx::pg_guard]
unsafe extern "C-unwind" fn visit(node: *mut pg_sys::Node, lender: *mut c_void) -> bool {
    // SAFETY: a node holds its own kind. The lender is the value with which the walk began, and no other code
    // uses it meanwhile.
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
        // SAFETY: an error of the server passes through here like any other error.
        unsafe { pg_sys::ffi::pg_guard_ffi_boundary(|| query_tree_walker(query, visit, context, 0)) };
    }

    /// # Safety
    /// See [`super::Lender::lend`].
    pub(super) unsafe fn walk_expression(node: *mut pg_sys::Node, context: *mut c_void) -> bool {
        // SAFETY: an error of the server passes through here like any other error.
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
        // SAFETY: the function is the server's own walk over a query of the server's.
        unsafe { pg_sys::query_tree_walker_impl(query, Some(visit), context, 0) };
    }

    /// # Safety
    /// See [`super::Lender::lend`].
    pub(super) unsafe fn walk_expression(node: *mut pg_sys::Node, context: *mut c_void) -> bool {
        // SAFETY: the function is the server's own walk over an expression of the server's.
        unsafe { pg_sys::expression_tree_walker_impl(node, Some(visit), context) }
    }
}

use walk::{walk_expression, walk_query};
