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
use commands::{Answer, Cli, Command};
use output::{Output, Surroundings};
use seeing::Format;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use tracing_subscriber::filter::LevelFilter;

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
