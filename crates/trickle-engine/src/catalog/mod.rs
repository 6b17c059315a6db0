//! The server's own catalog, as the engine sees it.
//!
//! The engine asks without waiting, so what it may ask for must be there before. [`PgCatalog`] holds what was read so
//! far and notes what was asked for in vain; [`compile`] reads that and compiles again, until nothing new is asked.

mod functions;
mod operators;
pub mod properties;
mod tables;
mod types;

use crate::capture::HIDDEN;
use crate::copies::Copies;
use crate::db::Connection;
use crate::error::Result;
use operators::Call;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use trickle_core::catalog::{Catalog, Collation, TableDef, TableId};
use trickle_core::expr::FuncSig;
use trickle_core::parse::Parsed;
use trickle_core::stream_table::{Options, Verdict, compile_parsed};
use trickle_core::types::Type;
use types::Types;

pub(crate) use tables::{KIND, canonical, reach};
pub use tables::{PlannedWith, Reach};
pub(crate) use types::spelled;

/// A qualified name; the schema is `None` where the query left it to the search path.
type Name = (Option<String>, String);

/// The fields of a composite type, in order.
type Fields = Vec<(Arc<str>, Type)>;

/// What the engine asked for in vain.
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

/// What was read of a database's catalog. Names without a schema are the server's own, as they are in canonical texts; where it has
/// no relation of that name, those of the schemas under which a query was typed.
#[derive(Debug, Default)]
pub struct PgCatalog {
    relations: BTreeMap<Name, Relation>,
    functions: BTreeMap<Name, Vec<Arc<FuncSig>>>,
    calls: BTreeMap<Call, Option<Arc<FuncSig>>>,
    fields: BTreeMap<String, Option<Fields>>,
    collations: BTreeMap<Name, Option<Collation>>,
    /// Where relations are looked for that are named without a schema, by whoever typed a query.
    typed: Vec<String>,
    /// What is read in the place of others.
    copies: Copies,
    /// Tables of which plans know no more than this.
    planned_with: BTreeMap<TableId, PlannedWith>,
    types: Types,
    wanted: RefCell<BTreeSet<Wanted>>,
}

impl PgCatalog {
    /// With nothing read yet.
    pub fn new() -> PgCatalog {
        PgCatalog::default()
    }

    /// With nothing read yet, for statements that run under a search path: their operators are found in these schemas.
    pub(crate) fn under(path: Vec<String>) -> PgCatalog {
        PgCatalog { types: Types::under(path), ..PgCatalog::default() }
    }

    /// Looks for relations without a schema as a query does that was typed under this search path.
    pub(crate) fn typed_under(&mut self, path: &[String]) {
        self.typed = path.to_vec();
    }

    /// Reads copies in the place of their sources.
    pub(crate) fn put_copies(&mut self, copies: Copies) {
        self.copies = copies;
    }

    /// Knows no more keys and columns without NULL of these tables than these.
    pub(crate) fn plan_with(&mut self, former: BTreeMap<TableId, PlannedWith>) {
        self.planned_with = former;
    }

    /// The types of columns, each from its oid and what `format_type` says of it.
    ///
    /// # Errors
    /// Those of the server.
    pub(crate) async fn column_types(
        &mut self,
        db: &dyn Connection,
        columns: &[(u32, &str)],
    ) -> Result<Vec<Type>> {
        self.types.load_columns(db, columns.iter().copied()).await?;
        Ok(columns.iter().map(|(oid, spelled)| self.types.column(*oid, spelled)).collect())
    }

    /// Reads a relation if it is not known yet.
    ///
    /// # Errors
    /// Those of the server.
    pub async fn fetch(&mut self, db: &dyn Connection, schema: Option<&str>, name: &str) -> Result<()> {
        self.relation(schema, name);
        self.catch_up(db).await.map(|_| ())
    }

    /// Reads what was asked for in vain; false where nothing was.
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
                    let found = functions::read(db, &mut self.types, name).await?;
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

    fn function(&self, schema: Option<&str>, name: &str, args: &[Type]) -> Option<Arc<FuncSig>> {
        let name = (schema.map(str::to_owned), name.to_owned());
        let Some(found) = self.functions.get(&name) else {
            self.wanted.borrow_mut().insert(Wanted::Function(name));
            return None;
        };
        functions::pick(found, args)
            .or_else(|| self.call(Call { operator: false, name, args: args.to_vec() }))
    }

    fn operator(&self, schema: Option<&str>, name: &str, args: &[Type]) -> Option<Arc<FuncSig>> {
        let name = (schema.map(str::to_owned), name.to_owned());
        self.call(Call { operator: true, name, args: args.to_vec() })
    }

    fn fields(&self, ty: &Type) -> Option<Vec<(Arc<str>, Type)>> {
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

    /// Of a type that was looked for.
    fn is_constrained(&self, schema: Option<&str>, name: &str) -> bool {
        self.types.is_constrained(&(schema.map(str::to_owned), name.to_owned()))
    }
}

/// Compiles a parsed query against the database that `db` is connected to.
///
/// # Errors
/// Those of the engine and of the server.
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
