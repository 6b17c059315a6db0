//! `trickle init`

use super::{Answer, Run};
use crate::failure::Failure;
use crate::output::Output;
use crate::server;
use serde_json::json;
use trickle_client::schema::VERSION;

/// Make trickle's catalog in the database, or upgrade it.
///
/// The catalog takes two schemas, pgtrickle and pgtrickle_changes. If the database has the catalog already,
/// nothing happens. The exception is a catalog that came with a dump: its tables are found again by name, and
/// the next refresh of each stream table rebuilds it. If buffer_limit_bytes is given, its value is stored,
/// and holds for all clients.
///
/// With --take-over, a superuser becomes the owner of a catalog that an ordinary role made, so that CREATE
/// EXTENSION adopts it. That role is given access as by pgtrickle.grant_to, and its stream tables stay as
/// they are.
#[derive(Debug, clap::Args)]
pub(crate) struct Init {
    /// Bring the catalog to this version instead of the newest; a lower version is possible too, for an older
    /// trickle.
    #[arg(long, value_name = "N", default_value_t = VERSION, value_parser = clap::value_parser!(i32).range(1..=i64::from(VERSION)))]
    catalog_version: i32,
    /// First make the current role, a superuser, the owner of the catalog of another role.
    #[arg(long)]
    take_over: bool,
}

impl Run for Init {
    async fn run(self, output: &mut Output) -> Result<Answer, Failure> {
        let (mut trickle, _) = server::attach(output).await?;
        let from = if self.take_over { Some(trickle.take_catalog().await?) } else { None };
        let before = trickle.migrate(self.catalog_version).await?;
        let (program, now) = (env!("CARGO_PKG_VERSION"), self.catalog_version);
        if output.is_json() {
            let mut told = json!({"program": program, "catalog": now, "catalog_before": before});
            if let Some(from) = from {
                told["taken_over_from"] = json!(from);
            }
            output.document(&told);
        } else if !output.is_quiet() {
            let catalog = match before {
                None => format!("catalog version {now} made"),
                Some(b) if b == now => format!("catalog version {now} is there already"),
                Some(b) => format!("catalog brought from version {b} to {now}"),
            };
            let taken = match from {
                Some(from) if !from.is_empty() => format!(", taken over from {}", from.join(", ")),
                _ => String::new(),
            };
            output.print(format!("trickle {program}: {catalog}{taken}\n"));
        }
        Ok(Answer::Yes)
    }
}
