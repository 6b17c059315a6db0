//! `trickle man`

use super::{Answer, Run};
use crate::failure::Failure;
use crate::output::Output;
use clap::CommandFactory;

/// Print the manual page.
///
/// To read it: trickle man | man -l -
#[derive(Debug, clap::Args)]
pub(crate) struct Man {
    /// Command whose page is printed, instead of the program's.
    command: Option<String>,
}

impl Run for Man {
    async fn run(self, output: &mut Output) -> Result<Answer, Failure> {
        let mut program = super::Cli::command();
        program.build();
        let page = match &self.command {
            None => program,
            Some(name) => program.find_subcommand(name).cloned().ok_or_else(|| {
                Failure::input(format!("command \"{name}\" does not exist"))
                    .hint("trickle --help lists the commands.")
            })?,
        };
        let mut text = Vec::new();
        let written = clap_mangen::Man::new(page).render(&mut text);
        written.map_err(|e| Failure::failed(format!("cannot write the manual page: {e}")))?;
        output.print(String::from_utf8_lossy(&text));
        Ok(Answer::Yes)
    }
}
