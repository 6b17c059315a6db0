//! The commands, one file each.
//!
//! To add one, say `trickle drop`:
//! 1. `commands/drop.rs`: `pub(crate) struct Drop` with `#[derive(Debug, clap::Args)]`, whose doc comment is the help
//!    and whose fields are the arguments, and `impl Run for Drop`.
//! 2. Below, `mod drop;` and the line `Drop(drop::Drop),` in `commands!`. Help, completions and the man page follow.
//! 3. A test of its exit codes in `tests/cli`.
//!
//! A command puts its result into [`Output`] (`print`, `table` for people; `document` where `is_json`), says how it
//! went with an [`Answer`], and stops with a [`Failure`] (exit code 2 for bad input, 3 without a connection, else 1).
//! `output.target()?.connect().await?` is the way to a server. Progress goes to standard error, and nowhere under
//! `is_quiet`.

mod completions;
mod demo;
mod doctor;
mod explain;
mod lint;
mod man;
mod run;

use crate::failure::Failure;
use crate::output::Output;

/// How it went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Done, or true.
    Yes,
    /// The thing asked for is false.
    No,
    /// The input is bad, as the result says.
    Refused,
}

/// What a command does.
pub(crate) trait Run {
    /// Runs it.
    async fn run(self, output: &mut Output) -> Result<Answer, Failure>;
}

macro_rules! commands {
    ($($Name:ident($Args:ty)),* $(,)?) => {
        /// Any command.
        #[derive(Debug, clap::Subcommand)]
        pub(crate) enum Command {
            $($Name($Args)),*
        }
        impl Command {
            pub(crate) async fn run(self, output: &mut Output) -> Result<Answer, Failure> {
                match self { $(Command::$Name(args) => args.run(output).await),* }
            }
        }
    };
}

// In the order of the help.
commands! {
    Explain(explain::Explain),
    Lint(lint::Lint),
    Run(run::Run),
    Demo(demo::Demo),
    Doctor(doctor::Doctor),
    Completions(completions::Completions),
    Man(man::Man),
}
