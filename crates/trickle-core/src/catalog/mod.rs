//! What the engine knows about the database: tables, keys, functions. An adapter implements [`Catalog`].

mod ddl;
mod extensions;
mod memory;

pub use memory::MemoryCatalog;

use crate::expr::FuncSig;
use crate::types::Type;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// Identifies a table within one database: its oid, or a number that a [`Catalog`] without a server made up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TableId(pub u32);

impl TableId {
    /// The clock, as a source that may change like a table: no relation has this oid.
    pub const CLOCK: TableId = TableId(0);
}

impl fmt::Display for TableId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The columns that every table has beside its own: they tell where and by whom a row is stored, which capture does not know,
/// and no table may have one of these names (PostgreSQL manual, "System Columns").
pub const SYSTEM_COLUMNS: [&str; 6] = ["tableoid", "ctid", "xmin", "xmax", "cmin", "cmax"];

/// A column of a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ColumnDef {
    /// Its name, unquoted.
    pub name: Arc<str>,
    /// Its type with modifiers.
    pub ty: Type,
    /// Whether NULL may be stored.
    pub nullable: bool,
    /// How it gets its value, where that is a function of the row's other columns.
    pub generated: Option<Generated>,
    /// The type that queries read it as, where no operators are found for its own: that of arrays of a domain's base type.
    #[serde(default)]
    pub read_as: Option<Type>,
    /// Its number in the table, as in `pg_attribute.attnum`, which neither a rename nor a dropped column changes; 0 where no
    /// server was asked.
    #[serde(default)]
    pub number: i16,
    /// The oid of its declared type; 0 where no server was asked.
    #[serde(default)]
    pub type_id: u32,
}

/// The expression of a generated column, over the names of the other columns of its table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Generated {
    /// Computed when the row is written.
    Stored(Arc<str>),
    /// Computed when it is read: no trigger sees its value.
    Virtual(Arc<str>),
}

impl ColumnDef {
    /// A column whose values are written.
    pub fn new(name: impl Into<Arc<str>>, ty: Type, nullable: bool) -> ColumnDef {
        ColumnDef { name: name.into(), ty, nullable, generated: None, read_as: None, number: 0, type_id: 0 }
    }
    /// Whether queries read its values as they are in the table.
    pub fn is_plain(&self) -> bool {
        self.is_stored() && self.read_as.is_none()
    }
    /// Whether its values are in the table.
    pub fn is_stored(&self) -> bool {
        !matches!(self.generated, Some(Generated::Virtual(_)))
    }
}

/// A foreign key: `columns` (positions here) reference `target_columns` (positions there).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForeignKey {
    /// Referencing columns of this table.
    pub columns: Vec<usize>,
    /// The referenced table.
    pub target: TableId,
    /// Referenced columns, a key of `target`.
    pub target_columns: Vec<usize>,
    /// Whether it is validated and enforced: only then may it prune a term, and only where the user trusts it.
    pub validated: bool,
}

/// Where rows come from; decides how changes can be seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum TableKind {
    /// An ordinary or partitioned table.
    Table,
    /// A stream table kept by trickle.
    StreamTable,
    /// A view that could not be expanded.
    View,
    /// A materialized view.
    MaterializedView,
    /// A foreign table.
    ForeignTable,
}

crate::vocabulary::words! {
    impl TableKind: "kind of source" {
        Table = "TABLE",
        StreamTable = "STREAM_TABLE",
        View = "VIEW",
        MaterializedView = "MATVIEW",
        ForeignTable = "FOREIGN_TABLE",
    }
}

/// An order of texts, and which of them are equal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collation {
    /// Its name, ready to be parsed by PostgreSQL.
    pub sql_name: String,
    /// Whether equal texts are always the same bytes.
    pub deterministic: bool,
}

/// A base relation. Compared and hashed by [`TableId`] alone: one catalog gives one definition per id.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TableDef {
    /// Identity.
    pub id: TableId,
    /// Schema name, unquoted.
    pub schema: Arc<str>,
    /// Table name, unquoted.
    pub name: Arc<str>,
    /// Columns in order, dropped ones left out.
    pub columns: Vec<ColumnDef>,
    /// Enforced keys (primary or unique, immediate), as column positions; the primary key first. A nullable unique
    /// column makes no key.
    pub keys: Vec<Vec<usize>>,
    /// Outgoing foreign keys.
    pub foreign_keys: Vec<ForeignKey>,
    /// What kind of relation.
    pub kind: TableKind,
    /// Whether other tables inherit from it, or are its partitions: their rows are its rows too.
    pub descendants: bool,
}

impl TableDef {
    /// An ordinary table without keys.
    pub fn new(
        id: TableId,
        schema: impl Into<Arc<str>>,
        name: impl Into<Arc<str>>,
        columns: Vec<ColumnDef>,
    ) -> TableDef {
        TableDef {
            id,
            schema: schema.into(),
            name: name.into(),
            columns,
            keys: Vec::new(),
            foreign_keys: Vec::new(),
            kind: TableKind::Table,
            descendants: false,
        }
    }
    /// The position of a column by name.
    pub fn column(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|c| &*c.name == name)
    }
}

impl PartialEq for TableDef {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}
impl Eq for TableDef {}
impl Hash for TableDef {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.id.hash(state);
    }
}

/// The database as the engine sees it while it compiles a query. Every method is a pure lookup.
pub trait Catalog {
    /// A table by name; `schema` is `None` where the query did not qualify it (then the search path decides).
    fn table(&self, schema: Option<&str>, name: &str) -> Option<Arc<TableDef>>;

    /// A table by identity.
    fn table_by_id(&self, id: TableId) -> Option<Arc<TableDef>>;

    /// The SELECT text behind a view, which lowering expands in place.
    fn view(&self, _schema: Option<&str>, _name: &str) -> Option<String> {
        None
    }

    /// A function or aggregate that is not built in, resolved for these argument types.
    fn function(&self, _schema: Option<&str>, _name: &str, _args: &[Type]) -> Option<Arc<FuncSig>> {
        None
    }

    /// An operator of one or two operands that is not built into the engine, resolved for their types; without a schema, one of the
    /// server's own.
    fn operator(&self, _schema: Option<&str>, _name: &str, _args: &[Type]) -> Option<Arc<FuncSig>> {
        None
    }

    /// The fields of a composite type, in order; `None` where it is none.
    fn fields(&self, _ty: &Type) -> Option<Vec<(Arc<str>, Type)>> {
        None
    }

    /// A collation by name.
    fn collation(&self, _schema: Option<&str>, _name: &str) -> Option<Collation> {
        None
    }

    /// A type that is not built in, the row type of a table among them.
    fn named_type(&self, _schema: Option<&str>, _name: &str) -> Option<Type> {
        None
    }

    /// Whether a type is a domain with constraints, which a cast to it checks.
    fn is_constrained(&self, _schema: Option<&str>, _name: &str) -> bool {
        false
    }

    /// Whether nothing but the name of a type is known, since no server was asked: not even whether it has an
    /// equality.
    fn is_opaque(&self, _ty: &Type) -> bool {
        false
    }

    /// Why a function, an operator or a type of this name (none: of any) may be there for arguments of these
    /// types though it is not found, as one sentence or two for people; `None` where the server was asked, or
    /// is known to have none.
    fn doubt(&self, _name: &str, _types: &[Type]) -> Option<String> {
        None
    }

    /// Names of tables that exist, to suggest one when a name is mistyped.
    fn table_names(&self) -> Vec<String> {
        Vec::new()
    }
}
