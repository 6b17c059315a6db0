//! Checks whether the stored table of a stream table still has the columns of the query, and measures its
//! states.

use crate::db::RefreshDriver;
use crate::error::{Error, Result};
use crate::registry::{Entry, shown};
use crate::trickle::Trickle;
use std::collections::BTreeMap;
use trickle_core::sql::Ident;

/// The columns of a table, their types, and whether an INSERT must set a value for the column.
const COLUMNS: &str = "SELECT attname, atttypid, attnotnull AND NOT atthasdef AND attidentity = '' FROM pg_attribute \
     WHERE attrelid = $1 AND attnum > 0 AND NOT attisdropped";

/// The number and size of the states of a stream table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateSizes {
    /// The number of states.
    pub tables: i64,
    /// The bytes of the states, with their indexes.
    pub bytes: i64,
}

const STATE_SIZES: &str = "SELECT count(*), coalesce(sum(pg_total_relation_size(c.oid)), 0)::int8 FROM pg_class c \
     WHERE c.relnamespace = to_regnamespace('pgtrickle_changes') AND c.relkind = 'r' AND c.relname ~ ('^state_' || $1::int8 || '_')";

impl<C: RefreshDriver> Trickle<C> {
    /// Returns the number and size of the states of the stream table with this `pgt_id`.
    ///
    /// # Errors
    /// Errors of the server.
    pub async fn state_sizes(&self, id: i64) -> Result<StateSizes> {
        let row = self.db().query_one(STATE_SIZES, &[&id]).await;
        let row = row.map_err(|e| Error::server("measure the hidden tables of a stream table", e))?;
        Ok(StateSizes { tables: row.get(0), bytes: row.get(1) })
    }

    /// Turns the error of a refresh into an error about the columns of the stored table, if the user altered
    /// them.
    pub(crate) async fn blamed_on_columns(&self, e: &Entry, error: Error) -> Error {
        // Class 42 means that a name in a statement was not found. 23502 means that a column has no value
        // and needs one.
        let of_columns = |state: &str| state.starts_with("42") || state == "23502";
        if !error.sqlstate().is_some_and(of_columns) {
            return error;
        }
        match self.altered_columns(e).await {
            Ok(Some(altered)) => {
                let facts = format!("PostgreSQL says: {}", error.message());
                error.saying(altered).detail(facts).hint(format!(
                    "Take that back, or give it its query: the columns that the query gives are made anew, others are dropped. {}",
                    self.voice().alter_query(&shown(e))
                ))
            }
            _ => error,
        }
    }

    /// Returns a message about the changes that the user made to the columns of the stored table, if there
    /// are any.
    async fn altered_columns(&self, e: &Entry) -> Result<Option<String>> {
        let fail = |err| Error::server(format!("look at the columns of {}", shown(e)), err);
        let given = self.db().columns(&e.query).await.map_err(fail)?;
        let rows = self.db().query(COLUMNS, &[&e.relation.id.0]).await.map_err(fail)?;
        let mut there: BTreeMap<String, (u32, bool)> =
            rows.iter().map(|r| (r.get(0), (r.get(1), r.get(2)))).collect();
        let mut altered = Vec::new();
        for (column, given) in given {
            let name = Ident::new(&column);
            match there.remove(&column) {
                None => altered.push(format!("{name} is missing")),
                Some((ty, _)) if ty != given => {
                    let named = "SELECT typname FROM pg_type WHERE oid = $1";
                    let named = self.db().query_one(named, &[&given]).await.map_err(fail)?;
                    altered.push(format!("{name} is not of the type {}", named.get::<&str>(0)));
                }
                Some(_) => {}
            }
        }
        let required = there.into_iter().filter(|(_, (_, required))| *required);
        altered.extend(required.map(|(name, _)| format!("{} must be given a value", Ident::new(name))));
        let said = format!("the columns of {} are not those of its query: {}", shown(e), altered.join(", "));
        Ok((!altered.is_empty()).then_some(said))
    }
}
