//! `trickle disable`

use super::{Answer, Run};
use crate::failure::Failure;
use crate::output::Output;
use crate::server;
use serde_json::json;
use trickle_client::Name;

/// Stop capturing the changes of a table at once, for when capture hinders its writers.
///
/// Every refresh recomputes the stream tables that read the table, until trickle enable.
#[derive(Debug, clap::Args)]
pub(crate) struct Disable {
    /// Table that stream tables read.
    #[arg(add = super::completions::sources())]
    source: String,
}

impl Run for Disable {
    async fn run(self, output: &mut Output) -> Result<Answer, Failure> {
        let name = Name::parse(&self.source)?;
        let (mut trickle, meter) = server::open(output).await?;
        meter.begin(format!("switching the capture of {name} off"));
        let source = trickle.disable(&name).await?;
        if output.is_json() {
            output.document(&json!({"source": source, "captured": false}));
        } else if !output.is_quiet() {
            output.print(format!(
                "the changes of {source} are captured no more; trickle enable {source} takes it up again\n"
            ));
        }
        Ok(Answer::Yes)
    }
}
