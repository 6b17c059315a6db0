//! Tables as plans know them: their identities, columns, keys and kinds.

use crate::types::Type;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// The identity of a table within one database: the table's oid, or a number that a catalog without a server
/// chose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TableId(pub u32);

impl TableId {
    /// The clock, which counts as a source that may change like a table. Its number is 0, which is the oid of
    /// no relation.
    pub const CLOCK: TableId = TableId(0);
}

impl fmt::Display for TableId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The system columns, which every table has in addition to the columns of its definition (PostgreSQL manual,
/// "System Columns"). They tell where a row is stored and which transaction wrote it. Capture does not record
/// their values. No user can define a column with one of these names.
pub const SYSTEM_COLUMNS: [&str; 6] = ["tableoid", "ctid", "xmin", "xmax", "cmin", "cmax"];

/// A column of a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ColumnDef {
    /// The name of the column, unquoted.
    pub name: Arc<str>,
    /// The type of the column, with modifiers.
    pub ty: Type,
    /// Whether the column can store NULL.
    pub nullable: bool,
    /// The expression of a generated column. Its value is a function of the row's other columns.
    pub generated: Option<Generated>,
    /// The type under which queries read the column, if the column's own type has no operators. The type for
    /// an array of a domain is an array of the domain's base type.
    #[serde(default)]
    pub read_as: Option<Type>,
    /// The number of the column in its table, as in `pg_attribute.attnum`. The number stays the same when
    /// columns are renamed or dropped. The value is 0 where no server was asked.
    #[serde(default)]
    pub number: i16,
    /// The oid of the column's declared type, or 0 where no server was asked.
    #[serde(default)]
    pub type_id: u32,
}

/// The expression of a generated column, which uses the names of the table's other columns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Generated {
    /// The expression of a column that is computed when a row is written.
    Stored(Arc<str>),
    /// The expression of a column that is computed when a row is read. No trigger sees its value.
    Virtual(Arc<str>),
}

impl ColumnDef {
    /// Makes a column that is not generated.
    pub fn new(name: impl Into<Arc<str>>, ty: Type, nullable: bool) -> ColumnDef {
        ColumnDef { name: name.into(), ty, nullable, generated: None, read_as: None, number: 0, type_id: 0 }
    }
    /// Whether queries read the column's values just as the table stores them.
    pub(crate) fn is_plain(&self) -> bool {
        self.is_stored() && self.read_as.is_none()
    }
    /// Whether the table stores the column's values.
    pub fn is_stored(&self) -> bool {
        !matches!(self.generated, Some(Generated::Virtual(_)))
    }
}

/// A foreign key from this table to a target table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForeignKey {
    /// The positions of the referencing columns in this table.
    pub columns: Vec<usize>,
    /// The referenced table.
    pub target: TableId,
    /// The positions of the referenced columns in `target`. These columns are a key of `target`.
    pub target_columns: Vec<usize>,
    /// Whether the foreign key is validated and enforced. A foreign key may simplify a delta only if it is
    /// validated, and only if the user guarantees that validated foreign keys hold in every state.
    pub validated: bool,
}

crate::vocabulary::words! {
    /// The kind of a relation. The kind decides how changes of the relation are found.
    pub enum TableKind: "kind of source" {
        /// An ordinary or partitioned table.
        Table = "TABLE",
        /// A stream table kept by trickle.
        StreamTable = "STREAM_TABLE",
        /// A view whose query could not be expanded into the reading query.
        View = "VIEW",
        /// A materialized view.
        MaterializedView = "MATVIEW",
        /// A foreign table.
        ForeignTable = "FOREIGN_TABLE",
    }
}

/// A source relation. Definitions are compared and hashed by [`TableId`] alone, since a catalog has one
/// definition for each identity.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TableDef {
    /// The identity of the relation.
    pub id: TableId,
    /// The name of the relation's schema, unquoted.
    pub schema: Arc<str>,
    /// The name of the relation, unquoted.
    pub name: Arc<str>,
    /// The columns in order. Dropped columns are not included.
    pub columns: Vec<ColumnDef>,
    /// The keys that the server enforces at once, as positions of columns. The primary key comes first, then
    /// unique constraints that are not deferrable. A unique constraint with a nullable column is a key only
    /// if it has NULLS NOT DISTINCT.
    pub keys: Vec<Vec<usize>>,
    /// The foreign keys from this table to others.
    pub foreign_keys: Vec<ForeignKey>,
    /// The kind of the relation.
    pub kind: TableKind,
    /// Whether the relation has inheritance children or partitions. Their rows are also rows of the relation.
    pub descendants: bool,
}

impl TableDef {
    /// Makes an ordinary table without keys and foreign keys.
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
    /// Returns the position of the column with a name, if there is one.
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
