//! `trickle`: stream tables from the command line.
//!
//! Standard output carries the result and nothing else; progress and logs go to standard error.

mod advice;
#[cfg(feature = "bench")]
mod bench;
mod colour;
mod commands;
mod demo;
mod failure;
mod finding;
mod output;
mod progress;
mod query;
mod script;
mod seeing;
mod server;
mod settings;
mod typed;

use clap::Parser;
use colour::stderr_colour;
use commands::{Answer, Command};
use output::{Output, Surroundings};
use seeing::Format;
use settings::Given;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use tracing_subscriber::filter::LevelFilter;
use trickle_client::connect::Secret;

/// Keeps tables equal to queries: incremental view maintenance for PostgreSQL 15 to 18, from outside the
/// server.
#[derive(Debug, Parser)]
#[command(name = "trickle", version, max_term_width = 100)]
#[command(
    after_help = "Exit codes: 0 done; 1 the check or the work failed; 2 wrong usage or bad input; 3 no \
                        connection; 4 something would be done (apply --dry-run --exit-code)."
)]
struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

/// The options that every command understands.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Global options")]
struct Global {
    /// Server and database: a postgres:// URL, key=value pairs or a database name [default: $DATABASE_URL,
    /// else the PG… variables and libpq's defaults].
    #[arg(long, global = true, value_name = "URL")]
    database_url: Option<Secret>,
    /// Print the result as one JSON document; a failure is a line on standard error, {"error": {…}}.
    #[arg(long, global = true)]
    json: bool,
    /// Print no progress, and only those parts of the result that are wrong.
    #[arg(long, short, global = true)]
    quiet: bool,
    /// Log more on standard error; -vv and -vvv log still more.
    #[arg(long, short, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
    /// Read settings from this file [default: trickle.toml in the current directory, if there is one].
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    settings: Given,
}

fn main() -> ExitCode {
    // A shell that asks for completions passes an incomplete command line, so the shell is answered before
    // the line is parsed.
    commands::answer_shell();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        // The command line was not understood, so only the word `--json` in it tells whether a program reads
        // the error.
        Err(e) if e.use_stderr() && std::env::args_os().any(|a| a == "--json") => {
            return report(&failure::Failure::usage(&e), true);
        }
        Err(e) => return explain(&e),
    };
    log(&cli);
    let logs_json = matches!(&cli.command, Command::Run(run) if run.log_format() == Format::Json);
    let json = cli.global.json || logs_json;
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(e) => return report(&failure::Failure::failed(format!("cannot start: {e}")), json),
    };
    let global = cli.global;
    let to =
        Surroundings { database_url: global.database_url, config: global.config, flags: global.settings };
    let mut output = Output::new(global.json, global.quiet, to);
    let answer = runtime.block_on(cli.command.run(&mut output));
    match answer.and_then(|a| output.finish().map(|()| a)) {
        Ok(Answer::Yes) => ExitCode::SUCCESS,
        Ok(Answer::No) => ExitCode::from(failure::FAILED),
        Ok(Answer::Differs) => ExitCode::from(failure::DIFFERS),
        Ok(Answer::Refused) => ExitCode::from(failure::INPUT),
        Err(e) => report(&e, json),
    }
}

/// Shows help, or the error in the command line.
fn explain(e: &clap::Error) -> ExitCode {
    let text = e.to_string();
    let told = typed::hidden(&text);
    if told == text {
        e.exit();
    }
    // The text has no colours, since codes of colours between its words could keep a password from being
    // found.
    let _ = std::io::stderr().write_all(told.as_bytes());
    ExitCode::from(failure::INPUT)
}

fn log(cli: &Cli) {
    // On a terminal, the refresher logs each refresh. Elsewhere it logs only problems, unless -v is given.
    let watched = matches!(cli.command, Command::Run(_)) && std::io::stderr().is_terminal();
    let level = match (cli.global.quiet, cli.global.verbose.max(u8::from(watched))) {
        (true, _) => LevelFilter::ERROR,
        (_, 0) => LevelFilter::WARN,
        (_, 1) => LevelFilter::INFO,
        (_, 2) => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    let refresher = match &cli.command {
        Command::Run(run) => Some(run.log_format()),
        _ => None,
    };
    seeing::log_to_stderr(level, refresher);
}

/// Writes a failure to standard error. If standard error is closed, the failure is lost.
fn report(failure: &failure::Failure, json: bool) -> ExitCode {
    let text = if json { failure.to_json() } else { failure.render(stderr_colour()) };
    let _ = std::io::stderr().write_all(text.as_bytes());
    ExitCode::from(failure.code())
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
