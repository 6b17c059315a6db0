//! `trickle uninstall`

use super::{Answer, Run};
use crate::failure::Failure;
use crate::output::Output;
use crate::server;
use serde_json::json;
use trickle_client::schema;
use trickle_engine::words::count;

/// Remove everything of trickle: stream tables, triggers, buffers and the catalog.
///
/// Refuses if something of yours, such as a view, depends on a stream table. Leaves nothing behind. If there
/// is no catalog, nothing happens.
#[derive(Debug, clap::Args)]
pub(crate) struct Uninstall {
    /// Also drop everything that depends on stream tables.
    #[arg(long)]
    cascade: bool,
}

impl Run for Uninstall {
    async fn run(self, output: &mut Output) -> Result<Answer, Failure> {
        let (mut trickle, meter) = server::attach(output).await?;
        let found = schema::version(trickle.db()).await?;
        let mut gone = Vec::new();
        if found.is_some() {
            schema::require(trickle.db()).await?;
            meter.begin("taking everything out");
            gone = trickle.uninstall(self.cascade).await?;
        }
        if output.is_json() {
            output.document(&json!({"catalog_before": found, "dropped": gone}));
        } else if !output.is_quiet() {
            output.print(match (found, gone.len()) {
                (None, _) => "there is no trickle catalog in this database\n".to_owned(),
                (Some(_), 0) => "the catalog is gone\n".to_owned(),
                (Some(_), n) => format!(
                    "the catalog is gone, and {} with it: {}\n",
                    count(n, "stream table", "stream tables"),
                    gone.join(", ")
                ),
            });
        }
        Ok(Answer::Yes)
    }
}
