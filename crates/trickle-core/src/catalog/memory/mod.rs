//! A catalog without a server, made from DDL text or by calls of its methods.

mod lookup;
#[cfg(test)]
mod tests;

use super::extensions::{self, Contents};
use super::{ColumnDef, TableDef, TableId};
use crate::error::{Error, Result};
use crate::expr::FuncSig;
use crate::types::{OtherType, Type};
use lookup::server_type;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// A name with its schema: the schema, then the name.
pub(in crate::catalog) type Name = (String, String);

/// The schema of objects with unqualified names.
pub(in crate::catalog) const DEFAULT_SCHEMA: &str = "public";

/// A catalog in memory: tables, views, types and functions. The search path is `public`.
#[derive(Clone, Debug, Default)]
pub struct MemoryCatalog {
    tables: Vec<Arc<TableDef>>,
    names: BTreeMap<Name, TableId>,
    views: HashMap<Name, String>,
    types: HashMap<Name, Type>,
    /// The fields of composite types. The map's key is PostgreSQL's name of the type.
    fields: HashMap<String, Vec<(Arc<str>, Type)>>,
    /// The collations under which equal texts may have different images.
    inexact: BTreeSet<Name>,
    /// The domains that have constraints.
    constrained: BTreeSet<Name>,
    functions: HashMap<Name, Vec<Arc<FuncSig>>>,
    operators: HashMap<Name, Vec<Arc<FuncSig>>>,
    /// The implicit casts of extensions' types, from the first type to the second.
    casts: Vec<(Type, Type)>,
    /// The created extensions, each with its schema.
    extensions: BTreeMap<String, String>,
    /// The extension to which a type, function or operator belongs, by its name.
    owners: HashMap<Name, String>,
    /// The types of which only the name is known. The set has PostgreSQL's names of the types.
    opaque: BTreeSet<String>,
    /// The names of functions over pseudo-types. The argument and result types of these functions are not
    /// recorded.
    vague: BTreeSet<String>,
    /// One error for each undefined type, with the position at which a statement first names the type.
    doubts: Vec<Error>,
    /// The columns of each index, by name. Positions would not do, since dropping a column changes the
    /// positions of others.
    indexes: Vec<(TableId, Vec<Arc<str>>)>,
}

impl MemoryCatalog {
    /// Makes an empty catalog.
    pub fn new() -> MemoryCatalog {
        MemoryCatalog::default()
    }

    /// Makes a catalog from DDL statements: CREATE TABLE, VIEW, TYPE … AS ENUM, DOMAIN, COLLATION, FUNCTION,
    /// AGGREGATE, UNIQUE INDEX and EXTENSION, and ALTER TABLE. Other statements, such as comments, grants and
    /// data, are skipped: they define neither types nor keys.
    ///
    /// # Errors
    /// Fails for a syntax error, an unknown table or column, or a table that is defined twice. Each error has
    /// its position in the text. An undefined type is not an error (see [`MemoryCatalog::take_doubts`]).
    pub fn from_ddl(sql: &str) -> Result<MemoryCatalog> {
        let mut catalog = MemoryCatalog::new();
        catalog.run(sql)?;
        Ok(catalog)
    }

    /// Adds the objects that a DDL text defines (see [`MemoryCatalog::from_ddl`]).
    ///
    /// # Errors
    /// Fails as [`MemoryCatalog::from_ddl`] does.
    pub fn run(&mut self, sql: &str) -> Result<()> {
        crate::parse::each_definition(sql, |d, source| super::ddl::apply(self, d, source))
    }

    /// Makes an ordinary table in schema `public`, with an identity that no other table of the catalog has.
    /// Callers can set its keys and foreign keys before they call [`MemoryCatalog::add_table`].
    pub fn new_table(&self, name: &str, columns: Vec<ColumnDef>) -> TableDef {
        TableDef::new(self.next_id(), "public", name, columns)
    }

    /// Adds a table. The new table replaces the table with the same identity, if there is one.
    ///
    /// # Errors
    /// Fails if another table or a view has the table's name.
    pub fn add_table(&mut self, table: TableDef) -> Result<()> {
        let name = (table.schema.to_string(), table.name.to_string());
        let taken = self.names.get(&name).is_some_and(|id| *id != table.id) || self.views.contains_key(&name);
        if taken {
            return Err(Error::setting(format!("relation \"{}\" already exists", table.name)));
        }
        self.names.retain(|_, id| *id != table.id);
        self.names.insert(name, table.id);
        match self.tables.iter_mut().find(|t| t.id == table.id) {
            Some(old) => *old = Arc::new(table),
            None => self.tables.push(Arc::new(table)),
        }
        Ok(())
    }

    /// Adds a view with the text of its query. The new view replaces the view with the same name, if there is
    /// one.
    pub fn add_view(&mut self, schema: &str, name: &str, query: impl Into<String>) {
        self.views.insert((schema.to_owned(), name.to_owned()), query.into());
    }

    /// Adds a type under a name.
    pub fn add_type(&mut self, schema: &str, name: &str, ty: Type) {
        self.opaque.remove(&ty.sql_name());
        self.types.insert((schema.to_owned(), name.to_owned()), ty);
    }

    /// Adds a domain under a name. `constrained` says whether the domain has constraints.
    pub(in crate::catalog) fn add_domain(&mut self, name: Name, ty: Type, constrained: bool) {
        if constrained {
            self.constrained.insert(name.clone());
        }
        self.types.insert(name, ty);
    }

    /// Adds a composite type and its fields under a name.
    pub(in crate::catalog) fn add_composite(&mut self, name: Name, fields: Vec<(Arc<str>, Type)>) {
        let ty = composite(&name);
        self.fields.insert(ty.sql_name(), fields);
        self.types.insert(name, ty);
    }

    /// Adds a nondeterministic collation. Under such a collation, equal texts may have different images.
    pub(in crate::catalog) fn add_inexact_collation(&mut self, name: Name) {
        self.inexact.insert(name);
    }

    /// Whether equal texts always have the same image under a collation.
    pub(in crate::catalog) fn is_exact_collation(&self, schema: Option<&str>, name: &str) -> bool {
        !self.inexact.contains(&Self::qualified(schema, name))
    }

    /// Adds a function or an aggregate. The new one replaces a function with the same name and the same
    /// argument types, if there is one. A signature without a schema gets the first schema of the search
    /// path.
    pub fn add_function(&mut self, sig: FuncSig) {
        let schema = sig.schema.as_deref().unwrap_or(DEFAULT_SCHEMA).to_owned();
        let name = sig.name.to_string();
        let sig = FuncSig { schema: Some(Arc::from(schema.as_str())), ..sig };
        let list = self.functions.entry((schema, name)).or_default();
        list.retain(|f| f.args != sig.args);
        list.push(Arc::new(sig));
    }

    /// Adds the listed objects of an extension, and the extensions that it requires.
    pub(in crate::catalog) fn add_extension(&mut self, name: &str, schema: &str) {
        if self.extensions.contains_key(name) {
            return;
        }
        self.extensions.insert(name.to_owned(), schema.to_owned());
        let Some(extension) = extensions::find(name) else { return };
        for required in &extension.requires {
            self.add_extension(required, schema);
        }
        let others = |ty: &str| {
            let here = self.extensions.values().find_map(|s| self.types.get(&(s.clone(), ty.to_owned())));
            here.cloned().or_else(|| server_type(ty))
        };
        let Contents { types, domains, casts, functions, operators } = extension.contents(schema, &others);
        let mut own = |what: &str| {
            self.owners.insert((schema.to_owned(), what.to_owned()), name.to_owned());
        };
        types.iter().for_each(|(ty, _)| own(ty));
        functions.iter().chain(&operators).for_each(|f| own(&f.name));
        for (ty, found) in types {
            self.add_type(schema, ty, found);
        }
        self.constrained.extend(domains.into_iter().map(|d| (schema.to_owned(), d.to_owned())));
        self.casts.extend(casts);
        functions.into_iter().for_each(|f| self.add_function(f));
        for sig in operators {
            let name = (schema.to_owned(), sig.name.to_string());
            self.operators.entry(name).or_default().push(Arc::new(sig));
        }
    }

    /// Returns the extension to which a type, function or operator with this name belongs. Returns `None`
    /// where the catalog knows no such extension.
    pub fn extension_of(&self, schema: &str, name: &str) -> Option<&str> {
        self.owners.get(&(schema.to_owned(), name.to_owned())).map(String::as_str)
    }

    /// Returns the extension to which a type belongs. For an array, returns the extension of its element
    /// type.
    pub fn extension_of_type(&self, ty: &Type) -> Option<&str> {
        let ty = ty.element().unwrap_or(ty).unmodified();
        let mut named = self.types.iter().filter(|(_, t)| **t == ty);
        named.find_map(|((schema, name), _)| self.extension_of(schema, name))
    }

    /// Returns the names of the created extensions.
    pub fn extensions(&self) -> impl Iterator<Item = &str> {
        self.extensions.keys().map(String::as_str)
    }

    /// Adds a type of which only the name is known. Values of such a type can be stored and returned, like
    /// the values of every type.
    pub(in crate::catalog) fn add_opaque(&mut self, name: Name, doubt: Error) {
        let ty = composite(&name);
        self.opaque.insert(ty.sql_name());
        self.types.insert(name, ty);
        self.doubts.push(doubt);
    }

    /// Adds a function of which only the name is known.
    pub(in crate::catalog) fn add_vague(&mut self, name: String) {
        self.vague.insert(name);
    }

    /// Returns an error for each undefined type that statements named since the last call. The error has the
    /// position at which the type was first named. Only a server can tell whether such a type exists.
    pub fn take_doubts(&mut self) -> Vec<Error> {
        std::mem::take(&mut self.doubts)
    }

    /// Adds an index that PostgreSQL can use to look up rows by the columns at these positions.
    pub(in crate::catalog) fn add_index(&mut self, table: &TableDef, columns: &[usize]) {
        let names = columns.iter().map(|c| table.columns[*c].name.clone()).collect();
        self.indexes.push((table.id, names));
    }

    /// Returns the indexes of a table, except the indexes of its keys. Each index is returned as the
    /// positions of its leading columns.
    pub fn indexes(&self, table: &TableDef) -> Vec<Vec<usize>> {
        let of = self.indexes.iter().filter(|(id, _)| *id == table.id);
        of.filter_map(|(_, names)| names.iter().map(|n| table.column(n)).collect()).collect()
    }

    /// Returns all tables, in the order in which they were added.
    pub fn tables(&self) -> &[Arc<TableDef>] {
        &self.tables
    }

    fn next_id(&self) -> TableId {
        TableId(self.tables.iter().map(|t| t.id.0 + 1).max().unwrap_or(1))
    }
}

/// Returns an identifier, in quotes where PostgreSQL requires them. Keywords get no quotes.
pub(in crate::catalog) fn quoted(name: &str) -> String {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    match name.chars().all(plain) && !name.starts_with(|c: char| c.is_ascii_digit()) {
        true if name != "default" => name.to_owned(),
        _ => format!("\"{}\"", name.replace('"', "\"\"")),
    }
}

/// Makes a composite type. The engine does not compare values of a composite type, so a column of such a type
/// cannot be part of a key.
pub(in crate::catalog) fn composite((schema, name): &Name) -> Type {
    Type::Other(Arc::new(OtherType {
        sql_name: format!("{}.{}", quoted(schema), quoted(name)),
        equality: false,
        hashable: false,
        ordered: false,
        exact: false,
    }))
}
