//! `trickle resume`

use super::{Answer, Run, pause};
use crate::failure::Failure;
use crate::output::Output;

/// Put stream tables back on schedule that were paused, or suspended after errors.
///
/// Without a name, all of the current role's.
#[derive(Debug, clap::Args)]
pub(crate) struct Resume {
    /// Which; without any, all.
    #[arg(add = super::completions::stream_tables())]
    names: Vec<String>,
}

impl Run for Resume {
    async fn run(self, output: &mut Output) -> Result<Answer, Failure> {
        pause::set(&self.names, false, output).await
    }
}
