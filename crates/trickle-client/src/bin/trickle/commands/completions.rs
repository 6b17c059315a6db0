//! `trickle completions`

use super::{Answer, Run};
use crate::failure::Failure;
use crate::output::Output;
use clap::CommandFactory;

/// Print a script that completes commands and options in a shell.
///
/// For bash: trickle completions bash > ~/.local/share/bash-completion/completions/trickle
#[derive(Debug, clap::Args)]
pub(crate) struct Completions {
    /// The shell.
    shell: clap_complete::Shell,
}

impl Run for Completions {
    async fn run(self, output: &mut Output) -> Result<Answer, Failure> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut crate::Cli::command(), "trickle", &mut script);
        output.print(String::from_utf8_lossy(&script));
        Ok(Answer::Yes)
    }
}
