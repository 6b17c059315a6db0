//! The facts about a database that the engine needs: tables, keys, functions. An adapter implements
//! [`Catalog`].

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

/// The identity of a table within one database: its oid, or a number that a [`Catalog`] without a server
/// chose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TableId(pub u32);

impl TableId {
    /// The clock, as a source that may change like a table. No relation has this oid.
    pub const CLOCK: TableId = TableId(0);
}

impl fmt::Display for TableId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The columns that every table has besides its own (PostgreSQL manual, "System Columns"). They tell where
/// and by which transaction a row is stored, which capture does not know. No column of a table may have one
/// of these names.
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
    /// The expression that computes it, where its value is a function of the row's other columns.
    pub generated: Option<Generated>,
    /// The type under which queries read it, where its own type has no operators. For arrays of a domain, it
    /// is an array of the domain's base type.
    #[serde(default)]
    pub read_as: Option<Type>,
    /// Its number in the table, as in `pg_attribute.attnum`. Neither a rename nor a dropped column changes
    /// it. 0 where no server was asked.
    #[serde(default)]
    pub number: i16,
    /// The oid of its declared type; 0 where no server was asked.
    #[serde(default)]
    pub type_id: u32,
}

/// The expression of a generated column, over the names of the other columns of its table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Generated {
    /// A column that is computed when the row is written.
    Stored(Arc<str>),
    /// A column that is computed when the row is read, so that no trigger sees its value.
    Virtual(Arc<str>),
}

impl ColumnDef {
    /// Makes a column that is not generated.
    pub fn new(name: impl Into<Arc<str>>, ty: Type, nullable: bool) -> ColumnDef {
        ColumnDef { name: name.into(), ty, nullable, generated: None, read_as: None, number: 0, type_id: 0 }
    }
    /// Whether queries read its values as they are stored in the table.
    pub fn is_plain(&self) -> bool {
        self.is_stored() && self.read_as.is_none()
    }
    /// Whether its values are stored in the table.
    pub fn is_stored(&self) -> bool {
        !matches!(self.generated, Some(Generated::Virtual(_)))
    }
}

/// A foreign key: `columns` (positions in this table) reference `target_columns` (positions in the target).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForeignKey {
    /// Referencing columns of this table.
    pub columns: Vec<usize>,
    /// The referenced table.
    pub target: TableId,
    /// Referenced columns, a key of `target`.
    pub target_columns: Vec<usize>,
    /// Whether it is validated and enforced. Only then may it simplify a delta, and only if the user trusts
    /// it.
    pub validated: bool,
}

/// The kind of a relation, which decides how its changes are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum TableKind {
    /// An ordinary or partitioned table.
    #[serde(rename = "TABLE")]
    Table,
    /// A stream table kept by trickle.
    #[serde(rename = "STREAM_TABLE")]
    StreamTable,
    /// A view that could not be expanded.
    #[serde(rename = "VIEW")]
    View,
    /// A materialized view.
    #[serde(rename = "MATVIEW")]
    MaterializedView,
    /// A foreign table.
    #[serde(rename = "FOREIGN_TABLE")]
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

/// A collation: an order of texts, and which texts are equal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collation {
    /// Its name, ready to be parsed by PostgreSQL.
    pub sql_name: String,
    /// Whether equal texts always have the same bytes.
    pub deterministic: bool,
}

/// A source relation, compared and hashed by its [`TableId`] alone: one catalog has one definition per id.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TableDef {
    /// The identity.
    pub id: TableId,
    /// The schema's name, unquoted.
    pub schema: Arc<str>,
    /// The table's name, unquoted.
    pub name: Arc<str>,
    /// The columns in order, without dropped ones.
    pub columns: Vec<ColumnDef>,
    /// The enforced keys (primary or unique, immediate), as column positions, the primary key first. A unique
    /// constraint with a nullable column is not among them.
    pub keys: Vec<Vec<usize>>,
    /// The outgoing foreign keys.
    pub foreign_keys: Vec<ForeignKey>,
    /// The kind of relation.
    pub kind: TableKind,
    /// Whether it has inheritance children or partitions, whose rows are its rows too.
    pub descendants: bool,
}

impl TableDef {
    /// Makes an ordinary table without keys.
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
    /// Returns the position of a column by its name.
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
    /// Returns a table by name. `schema` is `None` where the query does not qualify the name; then the search
    /// path decides.
    fn table(&self, schema: Option<&str>, name: &str) -> Option<Arc<TableDef>>;

    /// Returns a table by its identity.
    fn table_by_id(&self, id: TableId) -> Option<Arc<TableDef>>;

    /// Returns the SELECT text of a view, which lowering expands in place.
    fn view(&self, _schema: Option<&str>, _name: &str) -> Option<String> {
        None
    }

    /// Returns a function or aggregate that is not built in, resolved for these argument types.
    fn function(&self, _schema: Option<&str>, _name: &str, _args: &[Type]) -> Option<Arc<FuncSig>> {
        None
    }

    /// Returns an operator of one or two operands that is not built into the engine, resolved for their
    /// types. Without a schema, it is one of the server's own.
    fn operator(&self, _schema: Option<&str>, _name: &str, _args: &[Type]) -> Option<Arc<FuncSig>> {
        None
    }

    /// Returns the fields of a composite type, in order; `None` for any other type.
    fn fields(&self, _ty: &Type) -> Option<Vec<(Arc<str>, Type)>> {
        None
    }

    /// Returns a collation by its name.
    fn collation(&self, _schema: Option<&str>, _name: &str) -> Option<Collation> {
        None
    }

    /// Returns a type that is not built in, including the row type of a table.
    fn named_type(&self, _schema: Option<&str>, _name: &str) -> Option<Type> {
        None
    }

    /// Whether a type is a domain with constraints, which a cast to it checks.
    fn is_constrained(&self, _schema: Option<&str>, _name: &str) -> bool {
        false
    }

    /// Whether only the name of a type is known, since no server was asked. Then it is not even known whether
    /// the type has an equality.
    fn is_opaque(&self, _ty: &Type) -> bool {
        false
    }

    /// Returns the reason why a function, an operator or a type of this name may exist for arguments of these
    /// types, though it was not found. The reason is one or two sentences for people. An empty name stands
    /// for any name. `None` where the server was asked, or is known to have no such object.
    fn doubt(&self, _name: &str, _types: &[Type]) -> Option<String> {
        None
    }

    /// Returns names of existing tables, to suggest one when a name is mistyped.
    fn table_names(&self) -> Vec<String> {
        Vec::new()
    }
}
