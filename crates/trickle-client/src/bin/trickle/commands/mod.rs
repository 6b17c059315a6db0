//! The commands, one file each.
//!
//! To add a command, for example `trickle drop`, write:
//! 1. `commands/drop.rs`: `pub(crate) struct Drop` with `#[derive(Debug, clap::Args)]`, and
//!    `impl Run for Drop`. The doc comment of the struct is the help, and its fields are the arguments.
//! 2. Below, `mod drop;` and the line `Drop(drop::Drop),` in `commands!`. Help, completions and the man page
//!    follow.
//! 3. A test of the command's exit codes in `tests/cli`.
//!
//! A command puts its result into [`Output`] (`print`, `table` for people; `document` where `is_json`). The
//! command returns an [`Answer`], or stops with a [`Failure`] (exit code 2 for bad input, 3 without a
//! connection, else 1). The function [`crate::server::open`] connects to a database with stream tables.
//! Progress is shown on standard error, and not shown at all under `is_quiet`.

mod alter;
mod apply;
#[cfg(feature = "bench")]
mod bench;
mod check;
mod completions;
mod create;
mod demo;
mod disable;
mod doctor;
mod drop;
mod enable;
mod explain;
mod history;
mod init;
mod line;
mod lint;
mod man;
mod pause;
mod rebuild;
mod refresh;
mod resume;
mod run;
mod status;
mod uninstall;
mod wait;

use crate::failure::Failure;
use crate::output::Output;
pub(crate) use completions::answer as answer_shell;
pub(crate) use line::Cli;

/// The outcome of a command that has a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The work is done, or the checked condition holds.
    Yes,
    /// The checked condition does not hold.
    No,
    /// The input is bad, for the reasons that the result gives.
    Refused,
    /// The command would change something, as the result says.
    Differs,
}

/// A command that can be run.
pub(crate) trait Run {
    /// Runs the command.
    async fn run(self, output: &mut Output) -> Result<Answer, Failure>;
}

macro_rules! commands {
    ($($(#[$when:meta])? $Name:ident($Args:ty)),* $(,)?) => {
        /// Any command.
        #[derive(Debug, clap::Subcommand)]
        pub(crate) enum Command {
            $($(#[$when])? $Name($Args)),*
        }
        impl Command {
            pub(crate) async fn run(self, output: &mut Output) -> Result<Answer, Failure> {
                match self { $($(#[$when])? Command::$Name(args) => args.run(output).await),* }
            }
        }
    };
}

// The commands, in the order of the help.
commands! {
    Init(init::Init),
    Uninstall(uninstall::Uninstall),
    Create(create::Create),
    Alter(alter::Alter),
    Drop(drop::Drop),
    Apply(apply::Apply),
    Refresh(refresh::Refresh),
    Status(status::Status),
    History(history::History),
    Wait(wait::Wait),
    Check(check::Check),
    Pause(pause::Pause),
    Resume(resume::Resume),
    Disable(disable::Disable),
    Enable(enable::Enable),
    Rebuild(rebuild::Rebuild),
    Explain(explain::Explain),
    Lint(lint::Lint),
    Run(run::Run),
    Demo(demo::Demo),
    #[cfg(feature = "bench")]
    Bench(bench::Bench),
    Doctor(doctor::Doctor),
    Completions(completions::Completions),
    Man(man::Man),
}
