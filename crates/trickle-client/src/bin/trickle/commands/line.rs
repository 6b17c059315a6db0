//! The command line: the options of every command, and the command.

use super::Command;
use crate::settings::Given;
use clap::Parser;
use std::path::PathBuf;
use trickle_client::connect::Secret;

/// Keeps tables equal to queries: incremental view maintenance for PostgreSQL 15 to 18, from outside the
/// server.
#[derive(Debug, Parser)]
#[command(name = "trickle", version, max_term_width = 100)]
#[command(
    after_help = "Exit codes: 0 done; 1 the check or the work failed; 2 wrong usage or bad input; 3 no \
                        connection; 4 something would be done (apply --dry-run --exit-code)."
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The options that every command understands.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Global {
    /// Server and database: a postgres:// URL, key=value pairs or a database name [default: $DATABASE_URL,
    /// else the PG… variables and libpq's defaults].
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) database_url: Option<Secret>,
    /// Print the result as one JSON document; a failure is a line on standard error, {"error": {…}}.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Print no progress, and only those parts of the result that are wrong.
    #[arg(long, short, global = true)]
    pub(crate) quiet: bool,
    /// Log more on standard error; -vv and -vvv log still more.
    #[arg(long, short, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    /// Read settings from this file [default: trickle.toml in the current directory, if there is one].
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) settings: Given,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_definition_of_the_command_line_is_sound() {
        super::Cli::command().debug_assert();
    }

    #[test]
    fn every_command_and_option_says_what_it_does() {
        let mut program = super::Cli::command();
        program.build();
        let silent = |c: &clap::Command| {
            let of =
                c.get_arguments().filter(|a| a.get_help().is_none_or(|h| h.to_string().trim().is_empty()));
            of.map(|a| format!("{} {}", c.get_name(), a.get_id())).collect::<Vec<_>>()
        };
        let mut all = silent(&program);
        for command in program.get_subcommands() {
            assert!(command.get_about().is_some(), "{}", command.get_name());
            all.extend(silent(command));
        }
        assert!(all.is_empty(), "{all:#?}");
    }
}
