//! The catalog of the server, as the engine sees it.
//!
//! The engine cannot wait for an answer of the catalog. So the definitions that the engine needs must be
//! read before it asks the catalog for them. The definitions that were read so far are in a [`PgCatalog`],
//! which notes each question that it cannot answer yet. The function [`compile`] reads the answers to the
//! noted questions and compiles again, until no question is left.

mod copies;
mod functions;
mod operators;
pub mod properties;
mod tables;
mod types;

use crate::db::Connection;
use crate::error::Result;
use crate::names::HIDDEN;
use functions::Function;
use operators::Call;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use trickle_core::catalog::{Catalog, Collation, FuncKind, FuncSig, TableDef, TableId};
use trickle_core::parse::Parsed;
use trickle_core::stream_table::{Options, Verdict, compile_parsed};
use trickle_core::types::Type;
use types::Types;

pub(crate) use copies::{Copies, Copy, copies, is_copy};
pub(crate) use tables::{DEPENDENCIES, KIND, canonical, reach};
pub use tables::{PlannedWith, Reach};
pub(crate) use types::spelled;

/// A qualified name; the schema is `None` where the query names none.
type Name = (Option<String>, String);

/// The fields of a composite type, in order.
type Fields = Vec<(Arc<str>, Type)>;

/// A question that the catalog cannot answer before it reads the answer from the server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Wanted {
    Relation(Name),
    Function(Name),
    Type(Name),
    Call(Call),
    Fields(String),
    Collation(Name),
}

#[derive(Clone, Debug)]
enum Relation {
    Table(Arc<TableDef>),
    View(String),
    Absent,
}

/// The definitions that were read so far from a database's catalog. A name without a schema means an object
/// of the server's own, as in canonical texts. If the server has no relation of that name, the name means a
/// relation in the search path under which the query was typed.
#[derive(Debug, Default)]
pub struct PgCatalog {
    relations: BTreeMap<Name, Relation>,
    functions: BTreeMap<Name, Vec<Function>>,
    calls: BTreeMap<Call, Option<Arc<FuncSig>>>,
    fields: BTreeMap<String, Option<Fields>>,
    collations: BTreeMap<Name, Option<Collation>>,
    /// The schemas in which the catalog looks for relations that the typed query names without a schema.
    typed: Vec<String>,
    /// The copies that the query reads in the place of their sources.
    copies: Copies,
    /// For some tables, the only keys and never-NULL columns that plans may rely on.
    planned_with: BTreeMap<TableId, PlannedWith>,
    /// The users' functions that the query calls; `None` where they are not known.
    called: Option<Vec<u32>>,
    types: Types,
    wanted: RefCell<BTreeSet<Wanted>>,
}

impl PgCatalog {
    /// Makes a catalog into which nothing was read yet.
    pub fn new() -> PgCatalog {
        PgCatalog::default()
    }

    /// Makes a catalog into which nothing was read yet, for statements that run under the search path
    /// `path`. Operators of these statements are found in the schemas of that path.
    pub(crate) fn under(path: Vec<String>) -> PgCatalog {
        PgCatalog { types: Types::under(path), ..PgCatalog::default() }
    }

    /// Makes the catalog find no functions of users except these, which are the ones that the query calls. Of
    /// several functions with one name, PostgreSQL has then said which ones the query means.
    pub(crate) fn calling(&mut self, functions: &[u32]) {
        self.called = Some(functions.to_vec());
    }

    /// Makes the catalog look for relations without a schema in the search path under which the query was
    /// typed.
    pub(crate) fn typed_under(&mut self, path: &[String]) {
        self.typed = path.to_vec();
    }

    /// Makes the catalog read copies in the place of their sources.
    pub(crate) fn put_copies(&mut self, copies: Copies) {
        self.copies = copies;
    }

    /// Hides all keys and never-NULL columns of these tables, except the ones that `former` lists.
    pub(crate) fn plan_with(&mut self, former: BTreeMap<TableId, PlannedWith>) {
        self.planned_with = former;
    }

    /// Returns the types of columns. Each column is given by the oid of its type and the text that
    /// `format_type` returns for it.
    ///
    /// # Errors
    /// Errors of the server.
    pub(crate) async fn column_types(
        &mut self,
        db: &dyn Connection,
        columns: &[(u32, &str)],
    ) -> Result<Vec<Type>> {
        self.types.load_columns(db, columns.iter().copied()).await?;
        Ok(columns.iter().map(|(oid, spelled)| self.types.column(*oid, spelled)).collect())
    }

    /// Reads a relation if it was not read before.
    ///
    /// # Errors
    /// Errors of the server.
    pub async fn fetch(&mut self, db: &dyn Connection, schema: Option<&str>, name: &str) -> Result<()> {
        self.relation(schema, name);
        self.catch_up(db).await.map(|_| ())
    }

    /// Reads the answers to all noted questions; returns false where no question was noted.
    async fn catch_up(&mut self, db: &dyn Connection) -> Result<bool> {
        let wanted = self.wanted.take();
        for w in &wanted {
            match w {
                Wanted::Relation(name) => {
                    let copy = name.0.clone().and_then(|s| self.copies.get(&(s, name.1.clone())));
                    let copy = copy.map(|c| (Some(HIDDEN.to_owned()), c.name.clone()));
                    let read = copy.as_ref().unwrap_or(name);
                    let mut relation = tables::read(db, &mut self.types, &self.planned_with, read).await?;
                    let typed = self.typed.iter().filter(|_| name.0.is_none());
                    for schema in typed {
                        if relation.is_none() {
                            let there = (Some(schema.clone()), name.1.clone());
                            relation = tables::read(db, &mut self.types, &self.planned_with, &there).await?;
                        }
                    }
                    self.relations.insert(name.clone(), relation.unwrap_or(Relation::Absent));
                }
                Wanted::Function(name) => {
                    let found = functions::read(db, &mut self.types, name, self.called.as_deref()).await?;
                    self.functions.insert(name.clone(), found);
                }
                Wanted::Type(name) => self.types.load_named(db, name).await?,
                Wanted::Call(call) => {
                    let found = operators::call(db, &mut self.types, call).await?;
                    self.calls.insert(call.clone(), found);
                }
                Wanted::Fields(ty) => {
                    let found = operators::fields(db, &mut self.types, ty).await?;
                    self.fields.insert(ty.clone(), found);
                }
                Wanted::Collation(name) => {
                    let found = operators::collation(db, name).await?;
                    self.collations.insert(name.clone(), found);
                }
            }
        }
        Ok(!wanted.is_empty())
    }

    fn call(&self, call: Call) -> Option<Arc<FuncSig>> {
        match self.calls.get(&call) {
            Some(found) => found.clone(),
            None => {
                self.wanted.borrow_mut().extend(call.wanted());
                None
            }
        }
    }

    fn relation(&self, schema: Option<&str>, name: &str) -> Option<&Relation> {
        let name = (schema.map(str::to_owned), name.to_owned());
        let found = self.relations.get(&name);
        if found.is_none() {
            self.wanted.borrow_mut().insert(Wanted::Relation(name));
        }
        found
    }
}

impl Catalog for PgCatalog {
    fn table(&self, schema: Option<&str>, name: &str) -> Option<Arc<TableDef>> {
        match self.relation(schema, name)? {
            Relation::Table(t) => Some(t.clone()),
            _ => None,
        }
    }

    fn table_by_id(&self, id: TableId) -> Option<Arc<TableDef>> {
        let tables = self.relations.values();
        tables
            .filter_map(|r| if let Relation::Table(t) = r { Some(t) } else { None })
            .find(|t| t.id == id)
            .cloned()
    }

    fn view(&self, schema: Option<&str>, name: &str) -> Option<String> {
        match self.relation(schema, name)? {
            Relation::View(text) => Some(text.clone()),
            _ => None,
        }
    }

    fn returns_set(&self, schema: Option<&str>, name: &str) -> bool {
        let name = (schema.map(str::to_owned), name.to_owned());
        match self.functions.get(&name) {
            Some(found) => found.iter().any(|f| f.sig.kind == FuncKind::SetReturning),
            None => {
                self.wanted.borrow_mut().insert(Wanted::Function(name));
                false
            }
        }
    }

    fn function(&self, schema: Option<&str>, name: &str, args: &[Type]) -> Option<Arc<FuncSig>> {
        let name = (schema.map(str::to_owned), name.to_owned());
        let Some(found) = self.functions.get(&name) else {
            self.wanted.borrow_mut().insert(Wanted::Function(name));
            return None;
        };
        functions::pick(found, &vec![None; args.len()], args)
            .or_else(|| self.call(Call { operator: false, name, args: args.to_vec() }))
    }

    fn function_by_names(
        &self,
        schema: Option<&str>,
        name: &str,
        names: &[Option<&str>],
        args: &[Type],
    ) -> Option<Arc<FuncSig>> {
        let name = (schema.map(str::to_owned), name.to_owned());
        let Some(found) = self.functions.get(&name) else {
            self.wanted.borrow_mut().insert(Wanted::Function(name));
            return None;
        };
        functions::pick(found, names, args)
    }

    fn operator(&self, schema: Option<&str>, name: &str, args: &[Type]) -> Option<Arc<FuncSig>> {
        let name = (schema.map(str::to_owned), name.to_owned());
        self.call(Call { operator: true, name, args: args.to_vec() })
    }

    fn fields(&self, ty: &Type) -> Option<Vec<(Arc<str>, Type)>> {
        // A text type with another collation than the default one has no fields. Its name is not the name of
        // a type in the catalog.
        if ty.collation().is_some() {
            return None;
        }
        let name = ty.sql_name();
        let found = self.fields.get(&name).cloned();
        if found.is_none() {
            self.wanted.borrow_mut().insert(Wanted::Fields(name));
        }
        found.flatten()
    }

    fn collation(&self, schema: Option<&str>, name: &str) -> Option<Collation> {
        let name = (schema.map(str::to_owned), name.to_owned());
        let found = self.collations.get(&name).cloned();
        if found.is_none() {
            self.wanted.borrow_mut().insert(Wanted::Collation(name));
        }
        found.flatten()
    }

    fn named_type(&self, schema: Option<&str>, name: &str) -> Option<Type> {
        let name = (schema.map(str::to_owned), name.to_owned());
        let found = self.types.by_name(&name);
        if found.is_none() {
            self.wanted.borrow_mut().insert(Wanted::Type(name));
        }
        found.flatten()
    }

    /// Answers only for types that were read before.
    fn is_constrained(&self, schema: Option<&str>, name: &str) -> bool {
        self.types.is_constrained(&(schema.map(str::to_owned), name.to_owned()))
    }
}

/// Compiles a parsed query against the database that `db` is connected to.
///
/// # Errors
/// The errors of the engine; errors of the server.
pub async fn compile(
    db: &dyn Connection,
    catalog: &mut PgCatalog,
    parsed: &Parsed,
    options: &Options,
) -> Result<Verdict> {
    loop {
        let verdict = compile_parsed(parsed, catalog, options);
        if !catalog.catch_up(db).await? {
            return Ok(verdict?);
        }
    }
}
