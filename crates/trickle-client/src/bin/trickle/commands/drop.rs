//! `trickle drop`

use super::{Answer, Run};
use crate::failure::Failure;
use crate::output::Output;
use crate::server;
use serde_json::json;
use trickle_client::Name;

/// Drop a stream table, and the triggers and buffers that nothing else needs.
///
/// Refuses if other stream tables read the stream table, or if something of yours, such as a view, depends on
/// it.
#[derive(Debug, clap::Args)]
pub(crate) struct Drop {
    /// Name of the stream table.
    #[arg(add = super::completions::stream_tables())]
    name: String,
    /// Also drop the stream tables that read this one, and everything else that depends on it.
    #[arg(long)]
    cascade: bool,
    /// Do nothing if there is no stream table of this name.
    #[arg(long)]
    if_exists: bool,
}

impl Run for Drop {
    async fn run(self, output: &mut Output) -> Result<Answer, Failure> {
        let name = Name::parse(&self.name)?;
        let (mut trickle, meter) = server::open(output).await?;
        meter.begin(format!("dropping {name}"));
        let missing = |e: &trickle_client::Error| e.sqlstate() == Some("42P01");
        let gone = match trickle.find(&name).await {
            Err(e) if self.if_exists && missing(&e) => Vec::new(),
            Err(e) => return Err(e.into()),
            Ok(_) => trickle.drop(&name, self.cascade).await?,
        };
        if output.is_json() {
            output.document(&json!({"dropped": gone}));
        } else if gone.is_empty() && !output.is_quiet() {
            output.print(format!("there is no stream table {name}, nothing was changed\n"));
        } else if !output.is_quiet() {
            output.print(format!("dropped {}\n", gone.join(", ")));
        }
        Ok(Answer::Yes)
    }
}
