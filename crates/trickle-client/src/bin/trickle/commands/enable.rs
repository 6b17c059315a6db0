//! `trickle enable`

use super::{Answer, Run};
use crate::failure::Failure;
use crate::output::Output;
use crate::server;
use serde_json::json;
use trickle_client::Name;

/// Capture the changes of a table again, after trickle disable.
///
/// The next refresh of each stream table that reads the table recomputes it.
#[derive(Debug, clap::Args)]
pub(crate) struct Enable {
    /// Table that stream tables read.
    #[arg(add = super::completions::sources())]
    source: String,
}

impl Run for Enable {
    async fn run(self, output: &mut Output) -> Result<Answer, Failure> {
        let name = Name::parse(&self.source)?;
        let (mut trickle, meter) = server::open(output).await?;
        meter.begin(format!("capturing {name}"));
        let source = trickle.enable(&name).await?;
        if output.is_json() {
            output.document(&json!({"source": source, "captured": true}));
        } else if !output.is_quiet() {
            output.print(format!("the changes of {source} are captured\n"));
        }
        Ok(Answer::Yes)
    }
}
