//! `trickle resume`

use super::{Answer, Run, pause};
use crate::failure::Failure;
use crate::output::Output;

/// Refresh stream tables on schedule again that were paused, or suspended after errors.
///
/// Without a name, all stream tables of the current role are resumed.
#[derive(Debug, clap::Args)]
pub(crate) struct Resume {
    /// Stream tables to resume [default: all of the current role].
    #[arg(add = super::completions::stream_tables())]
    names: Vec<String>,
}

impl Run for Resume {
    async fn run(self, output: &mut Output) -> Result<Answer, Failure> {
        pause::set(&self.names, false, output).await
    }
}
