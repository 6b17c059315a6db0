//! The schema and the name that a new stream table gets.

use crate::db::RefreshDriver;
use crate::error::{Error, Result};
use crate::names::Name;
use crate::trickle::Trickle;
use trickle_core::catalog::TableId;
use trickle_core::refresh::Relation;
use trickle_core::sql::{Ident, Qualified};
use trickle_core::vocabulary;

impl<C: RefreshDriver> Trickle<C> {
    /// Returns the schema and the name that a new table of this name gets. Also returns the `pgt_id` of a
    /// stream table that has this name already.
    pub(crate) async fn place(&self, name: &Name) -> Result<(Relation, Option<i64>)> {
        let doing = |e| {
            let e = Error::server(format!("look for {name}"), e);
            match (e.sqlstate(), &name.schema) {
                (Some("42501"), Some(schema)) => {
                    let schema = Ident::new(schema);
                    e.hint(format!(
                        "As the schema's owner: GRANT USAGE, CREATE ON SCHEMA {schema} TO this role"
                    ))
                }
                _ => e,
            }
        };
        let schema = match &name.schema {
            Some(s) => s.clone(),
            None => self.search_path.first().cloned().ok_or_else(|| {
                Error::input(format!("no schema to create {name} in"))
                    .hint("Set search_path, or write schema.name.")
            })?,
        };
        let row = self
            .db()
            .query_one(
                "SELECT to_regnamespace(quote_ident($1)) IS NOT NULL, c.oid, c.relkind::text, s.pgt_id, \
                 has_schema_privilege(to_regnamespace(quote_ident($1)), 'CREATE'), current_user::text \
                 FROM (SELECT to_regclass(pg_catalog.format('%I.%I', $1::text, $2::text))::oid AS oid) o \
                 LEFT JOIN pg_class c ON c.oid = o.oid LEFT JOIN pgtrickle.pgt_stream_tables s ON s.pgt_relid = c.oid",
                &[&schema, &name.name],
            )
            .await
            .map_err(doing)?;
        if !row.get::<bool>(0) {
            return Err(Error::input(format!("schema \"{schema}\" does not exist"))
                .hint(format!("CREATE SCHEMA {}", Ident::new(&schema))));
        }
        let oid: Option<u32> = row.get(1);
        let relation = Relation {
            id: TableId(oid.unwrap_or(0)),
            schema: schema.into(),
            name: name.name.as_str().into(),
        };
        let id: Option<i64> = row.get(3);
        if oid.is_some() && id.is_none() {
            return Err(taken_by_other(&relation, row.get(2)));
        }
        if oid.is_none() && row.get::<Option<bool>>(4) != Some(true) {
            let (shown, role) = (Ident::new(&relation.schema), Ident::new(row.get::<String>(5)));
            return Err(Error::input(format!("role {role} may not create tables in schema {shown}"))
                .hint(format!("As the schema's owner: GRANT CREATE ON SCHEMA {shown} TO {role}")));
        }
        Ok((relation, id))
    }
}

/// Returns the error for a name that a relation of another kind has.
fn taken_by_other(relation: &Relation, relkind: &str) -> Error {
    let what = match relkind {
        "v" => "view",
        "m" => "materialized view",
        "i" | "I" => "index",
        "S" => "sequence",
        "c" => "composite type",
        "f" => "foreign table",
        "r" | "p" => "table",
        unknown => return vocabulary::unknown("kind of relation", unknown).into(),
    };
    let shown = Qualified::new(&relation.schema, &relation.name);
    Error::input(format!("{what} {shown} already exists and is no stream table"))
        .coded("42P07")
        .hint("Choose another name.")
}
