//! `trickle rebuild`

use super::{Answer, Run};
use crate::failure::Failure;
use crate::output::Output;
use crate::server;
use serde_json::json;

/// Make the triggers and buffers of tables anew, if they are broken or differ from cdc_trigger_mode and
/// change_buffer_unlogged.
///
/// The next refresh recomputes each stream table that reads a table whose triggers were made anew.
#[derive(Debug, clap::Args)]
pub(crate) struct Rebuild {
    /// Tables that stream tables read [default: all].
    #[arg(add = super::completions::sources())]
    sources: Vec<String>,
}

impl Run for Rebuild {
    async fn run(self, output: &mut Output) -> Result<Answer, Failure> {
        let names = server::names(&self.sources)?;
        let (mut trickle, meter) = server::open(output).await?;
        meter.begin("making triggers anew");
        let rebuilt = trickle.rebuild_triggers(&names).await?;
        drop((trickle, meter));
        if output.is_json() {
            output.document(&json!({"rebuilt": rebuilt}));
        } else if !output.is_quiet() {
            match rebuilt.is_empty() {
                true => output.print("all triggers are as they should be\n"),
                false => rebuilt.iter().for_each(|name| output.print(format!("{name}: made anew\n"))),
            }
        }
        Ok(Answer::Yes)
    }
}
