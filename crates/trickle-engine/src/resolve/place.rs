//! The schema in which views of queries are made.

use crate::db::{Connection, ServerError, Transaction};
use trickle_core::sql::Qualified;

/// The schema in which the view of the query is made.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    Temporary,
    /// A schema of its own, which is dropped together with the view. This variant is needed because a
    /// security-restricted operation cannot make temporary objects, and no role may make objects in a
    /// permanent schema of trickle's.
    Apart(String),
}

impl Place {
    /// Returns the schema for the view, and makes it where needed. The caller must roll back its
    /// transaction.
    pub(crate) async fn of(t: &Transaction<'_>) -> Result<Place, ServerError> {
        if !t.is_restricted() {
            return Ok(Place::Temporary);
        }
        let text = "SELECT 'pgtrickle_query_' || pg_backend_pid(), quote_ident(current_user)";
        let row = t.query_one(text, &[]).await?;
        let (schema, role): (String, &str) = (row.get(0), row.get(1));
        t.as_catalog_owner(&format!("CREATE SCHEMA {schema} AUTHORIZATION {role}")).await?;
        Ok(Place::Apart(schema))
    }

    /// Returns the beginning of the statement that makes a view in this schema.
    pub(crate) fn create(&self, name: &str) -> String {
        let temporary = if matches!(self, Place::Temporary) { "TEMPORARY " } else { "" };
        format!("CREATE {temporary}VIEW {} AS\n", self.of_name(name))
    }

    /// Returns the beginning of the statement that makes a table in this schema.
    pub(crate) fn table(&self, name: &str) -> String {
        let temporary = if matches!(self, Place::Temporary) { "TEMPORARY " } else { "" };
        format!("{temporary}TABLE {}", self.of_name(name))
    }

    pub(crate) fn of_name(&self, name: &str) -> String {
        self.qualified(name).to_string()
    }

    /// Whether `schema` means this schema, in the form in which the server writes names under the search
    /// path [`SHUT`].
    pub(crate) fn is(&self, schema: Option<&str>) -> bool {
        match self {
            Place::Temporary => schema.is_none_or(|s| s.starts_with("pg_temp")),
            Place::Apart(own) => schema == Some(own.as_str()),
        }
    }

    pub(crate) fn qualified(&self, name: &str) -> Qualified {
        match self {
            Place::Temporary => Qualified::new("pg_temp", name),
            Place::Apart(schema) => Qualified::new(schema, name),
        }
    }
}
