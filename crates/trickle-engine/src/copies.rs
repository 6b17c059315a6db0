//! Copies of relations whose changes cannot be captured: materialized views and foreign tables.
//!
//! A copy is a stream table in the schema of buffers. Its query reads all of its source. Each refresh makes
//! the copy equal to the source by writing the difference ([`Copied`](trickle_core::refresh::Copied)). The
//! changes of a copy are captured as for any table. Stream tables that follow the source read the copy
//! instead. So all of these stream tables see one state of the source, which was read once. A refresh of a
//! copy costs as much as reading the whole source, even if few rows changed.

use crate::catalog::{self, Copies, Copy, PgCatalog, copies};
use crate::db::RefreshDriver;
use crate::design::{Design, IfExists, NewStreamTable, options};
use crate::error::{Error, Result};
use crate::in_force::safe_path;
use crate::names::{HIDDEN, Name};
use crate::resolve::{Dependency, Resolved, resolve};
use crate::trickle::Trickle;
use std::sync::Arc;
use trickle_core::parse::parse_query;
use trickle_core::refresh::Relation;
use trickle_core::sql::Qualified;
use trickle_core::vocabulary::RefreshMode;

/// The facts about a copy that the catalog stores for a source.
const OF_TABLE: &str = "
SELECT pgtrickle.fingerprint(c.oid), c.relowner::regrole::text, pg_has_role(current_user, c.relowner, 'USAGE')
FROM pg_class c WHERE c.oid = $1";

/// The name of the copy that the current role makes of source `$1`.
const NAME: &str = "SELECT pg_catalog.format('copy_%s_%s', $1::oid, quote_ident(current_user)::regrole::oid)";

/// The copies of the current role that no stream table reads.
const UNREAD: &str = "
SELECT s.pgt_id FROM pgtrickle.pgt_stream_tables s
JOIN pg_class o ON o.oid = s.pgt_relid AND o.relowner = quote_ident(current_user)::regrole
WHERE s.pgt_schema = 'pgtrickle_changes' AND s.pgt_name LIKE 'copy\\_%'
    AND NOT EXISTS (SELECT FROM pgtrickle.pgt_dependencies d WHERE d.source_relid = s.pgt_relid)
ORDER BY s.pgt_id";

impl<C: RefreshDriver> Trickle<C> {
    /// Makes a copy of each materialized view and foreign table that a query reads, where the copy is
    /// missing. Widens a copy that lacks a column of its source. The first refresh of a reader fills the
    /// copy.
    pub(crate) async fn ensure_copies(&mut self, query: &str) -> Result<()> {
        let typed = self.search_path.clone();
        let resolved = resolve(&mut self.connection, query, &[], &typed, None).await?;
        for d in resolved.dependencies.iter().filter(|d| is_copied(d)) {
            let there = copies(self.db()).await?;
            let copy = there.get(&(d.schema.clone(), d.name.clone()));
            if let Some(copy) = copy
                && self.has_all_columns(copy, d).await?
            {
                continue;
            }
            let name = match copy {
                Some(copy) => copy.name.clone(),
                None => {
                    let row = self.db().query_one(NAME, &[&d.oid]).await;
                    row.map_err(|e| Error::server("name a copy", e))?.get(0)
                }
            };
            let source = Qualified::new(&d.schema, &d.name);
            let columns = self.columns_in_order(d, copy).await?;
            let new = NewStreamTable {
                mode: Some(RefreshMode::Full),
                initialize: false,
                if_exists: IfExists::Replace,
                ..NewStreamTable::new(
                    Name { schema: Some(HIDDEN.to_owned()), name },
                    format!("SELECT {columns} FROM {source}"),
                )
            };
            self.progress
                .say(&format!("{source} is read as a whole at each refresh and compared with a copy of it"));
            Box::pin(self.create_over(&new)).await?;
        }
        Ok(())
    }

    /// Returns the columns of a source. The columns that its copy has come first, in the order of the copy.
    async fn columns_in_order(&self, source: &Dependency, copy: Option<&Copy>) -> Result<String> {
        let text = "SELECT coalesce(string_agg(quote_ident(a.attname), ', ' ORDER BY c.attnum NULLS LAST, a.attnum), '') \
             FROM pg_attribute a LEFT JOIN pg_attribute c ON c.attrelid = $2 AND c.attname = a.attname AND c.attnum > 0 \
             AND NOT c.attisdropped WHERE a.attrelid = $1 AND a.attnum > 0 AND NOT a.attisdropped";
        let copy = copy.map_or(0, |c| c.oid);
        let row = self.db().query_one(text, &[&source.oid, &copy]).await;
        Ok(row.map_err(|e| Error::server("read the columns of a source", e))?.get(0))
    }

    async fn has_all_columns(&self, copy: &Copy, source: &Dependency) -> Result<bool> {
        // A change of a column's type alters the definition of the source, and the next refresh notices it.
        let text = "SELECT NOT EXISTS (SELECT attname FROM pg_attribute WHERE attrelid = $1 AND attnum > 0 AND NOT attisdropped \
             EXCEPT SELECT attname FROM pg_attribute WHERE attrelid = $2 AND attnum > 0 AND NOT attisdropped)";
        let row = self.db().query_one(text, &[&source.oid, &copy.oid]).await;
        Ok(row.map_err(|e| Error::server("compare the columns of a copy", e))?.get(0))
    }

    /// Drops the copies that no stream table reads any more.
    pub(crate) async fn sweep_copies(&mut self) -> Result<()> {
        let fail = |e| Error::server("look for copies that nothing reads", e);
        for r in self.db().query(UNREAD, &[]).await.map_err(fail)? {
            Box::pin(self.drop_id(r.get(0), false)).await?;
        }
        Ok(())
    }

    /// Returns the copies that a query reads instead of their sources, and adds the copies to the sources of
    /// the query.
    pub(crate) async fn put_copies(&self, resolved: &mut Resolved) -> Result<Copies> {
        let mut there = copies(self.db()).await?;
        there.retain(|(schema, name), _| {
            resolved.dependencies.iter().any(|d| is_copied(d) && d.schema == *schema && d.name == *name)
        });
        for copy in there.values() {
            let row = self.db().query_one(OF_TABLE, &[&copy.oid]).await;
            let row = row.map_err(|e| Error::server("read the definition of a copy", e))?;
            resolved.dependencies.push(Dependency {
                oid: copy.oid,
                schema: HIDDEN.to_owned(),
                name: copy.name.clone(),
                relkind: "r".to_owned(),
                fingerprint: row.get(0),
                is_stream_table: true,
                owned: row.get(2),
                owner: row.get(1),
                is_named_as_type: false,
                read_through: vec![0],
                row_security: None,
                names: None,
                named: None,
            });
        }
        Ok(there)
    }

    /// Designs a copy as a stream table whose query reads all of the source.
    pub(crate) async fn design_copy(
        &mut self,
        relation: Relation,
        id: i64,
        new: &NewStreamTable,
    ) -> Result<Design> {
        let typed = self.search_path.clone();
        let resolved =
            resolve(&mut self.connection, &new.query, new.settings(), &typed, new.agreed.as_ref()).await?;
        let options = options(&relation, id, self.server);
        let parsed = parse_query(&resolved.canonical)?;
        let settings = self.settings_of(new).await?;
        let mut catalog = PgCatalog::under(safe_path(self.db(), &settings).await?);
        let verdict = catalog::compile(self.db(), &mut catalog, &parsed, &options).await?;
        let Some(table) = verdict.incremental() else {
            return Err(Error::input(format!("{} cannot be copied", new.query)));
        };
        let agreed = new.agreed.clone().unwrap_or_else(|| resolved.code.strange.clone());
        Ok(Design {
            relation,
            query: new.query.clone(),
            schedule: new.schedule.clone().unwrap_or_else(|| Some("calculated".to_owned())),
            requested: RefreshMode::Full,
            apart: false,
            resolved,
            table: Some(Arc::new(table)),
            reasons: Vec::new(),
            captured: Vec::new(),
            settings,
            agreed,
        })
    }
}

/// Returns the sources of a query that are read through copies.
pub(crate) fn compared(resolved: &Resolved) -> Vec<String> {
    if !resolved.dependencies.iter().any(|d| d.schema == HIDDEN) {
        return Vec::new();
    }
    let name = |d: &Dependency| Qualified::new(&d.schema, &d.name).to_string();
    resolved.dependencies.iter().filter(|d| is_copied(d)).map(name).collect()
}

fn is_copied(d: &Dependency) -> bool {
    matches!(d.relkind.as_str(), "m" | "f")
}
