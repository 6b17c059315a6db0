//! The facts about a database that the engine reads: tables, keys, types, functions. The code that knows a
//! database implements [`Catalog`].

mod ddl;
mod extensions;
mod memory;

pub use crate::expr::functions::{implicit_cast, reads_settings_alone};
pub use crate::expr::{FuncKind, FuncSig, Volatility};
pub use crate::table::{ColumnDef, ForeignKey, Generated, SYSTEM_COLUMNS, TableDef, TableId, TableKind};
pub use memory::MemoryCatalog;

use crate::types::Type;
use std::sync::Arc;

/// A collation, which determines the order and the equality of texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collation {
    /// The name of the collation, as PostgreSQL parses it.
    pub sql_name: String,
    /// Whether equal texts always have the same bytes under the collation.
    pub deterministic: bool,
}

/// The database as the engine sees it when it compiles a query. Every method is a lookup without side
/// effects.
pub trait Catalog {
    /// Returns the table with a name. `schema` is `None` where the query does not qualify the name. The
    /// search path then determines the table.
    fn table(&self, schema: Option<&str>, name: &str) -> Option<Arc<TableDef>>;

    /// Returns the table with this id.
    fn table_by_id(&self, id: TableId) -> Option<Arc<TableDef>>;

    /// Returns the SELECT text of a view. Lowering replaces the view by the view's query.
    fn view(&self, _schema: Option<&str>, _name: &str) -> Option<String> {
        None
    }

    /// Returns a function or aggregate that accepts arguments of these types and is not built into the
    /// engine.
    fn function(&self, _schema: Option<&str>, _name: &str, _args: &[Type]) -> Option<Arc<FuncSig>> {
        None
    }

    /// Whether there is a set-returning function with this name that is not built into the engine.
    fn returns_set(&self, _schema: Option<&str>, _name: &str) -> bool {
        false
    }

    /// Returns the function that a call with named arguments means. `names` has the name of each argument,
    /// and
    /// `None` for an argument without a name. The signature has the types of the call's arguments, in the
    /// order of the call.
    fn function_by_names(
        &self,
        _schema: Option<&str>,
        _name: &str,
        _names: &[Option<&str>],
        _args: &[Type],
    ) -> Option<Arc<FuncSig>> {
        None
    }

    /// Returns an operator of one or two operands that is not built into the engine and accepts operands of
    /// these types. Without a schema, only operators that are built into the server are considered.
    fn operator(&self, _schema: Option<&str>, _name: &str, _args: &[Type]) -> Option<Arc<FuncSig>> {
        None
    }

    /// Returns the fields of a composite type, in order. Returns `None` for any other type.
    fn fields(&self, _ty: &Type) -> Option<Vec<(Arc<str>, Type)>> {
        None
    }

    /// Returns the collation with a name.
    fn collation(&self, _schema: Option<&str>, _name: &str) -> Option<Collation> {
        None
    }

    /// Returns a type that is not built into the engine. The row types of tables are also such types.
    fn named_type(&self, _schema: Option<&str>, _name: &str) -> Option<Type> {
        None
    }

    /// Whether a type is a domain with constraints, or a composite type that contains such a domain. A cast
    /// to such a type checks the constraints.
    fn is_constrained(&self, _schema: Option<&str>, _name: &str) -> bool {
        false
    }

    /// Whether only the name of a type is known, since no server was asked. It is then not even known whether
    /// the type has an equality operator.
    fn is_opaque(&self, _ty: &Type) -> bool {
        false
    }

    /// Returns the reason why an object that was not found may exist on the server. The object is a function
    /// or operator for arguments of `types`, or a type. The reason is one or two sentences for people. An
    /// empty `name` stands for an object with any name. Returns `None` where the server was asked, or where
    /// the server is known not to have the object.
    fn doubt(&self, _name: &str, _types: &[Type]) -> Option<String> {
        None
    }

    /// Returns the names of tables and views, from which a suggestion is made for a mistyped name.
    fn table_names(&self) -> Vec<String> {
        Vec::new()
    }
}
