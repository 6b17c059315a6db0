//! `trickle completions`, and the answers to a shell that completes a line.

use super::{Answer, Run};
use crate::failure::Failure;
use crate::output::Output;
use clap::CommandFactory;
use clap_complete::env::Shells;
use clap_complete::{ArgValueCompleter, CompleteEnv, CompletionCandidate};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::time::Duration;
use trickle_client::connect::Target;
use trickle_client::registry::{Entry, Registry};
use trickle_client::{Session, Settings, Trickle};
use trickle_core::refresh::Relation;

/// The environment variable that the shell's script sets when the shell asks for completions.
const ASKS: &str = "TRICKLE_COMPLETE";

/// The longest time that a completion waits for the server.
const PATIENCE: Duration = Duration::from_secs(1);

/// Print a script that completes commands, options and names of stream tables in a shell.
///
/// For bash, in ~/.bashrc: source <(trickle completions bash)
///
/// Names come from the database that $DATABASE_URL or the PG… variables name.
#[derive(Debug, clap::Args)]
pub(crate) struct Completions {
    /// Shell that the script is for.
    shell: clap_complete::Shell,
}

impl Run for Completions {
    async fn run(self, output: &mut Output) -> Result<Answer, Failure> {
        let shell = self.shell.to_string();
        let shells = Shells::builtins();
        let known = shells.completer(&shell);
        let known = known.ok_or_else(|| Failure::input(format!("there is no script for {shell}")))?;
        let mut script = Vec::new();
        let written = known.write_registration(ASKS, "trickle", "trickle", "trickle", &mut script);
        written.map_err(|e| Failure::failed(format!("cannot write the script: {e}")))?;
        output.print(String::from_utf8_lossy(&script));
        Ok(Answer::Yes)
    }
}

/// Answers and exits, if a shell asks how a command line may continue.
pub(crate) fn answer() {
    CompleteEnv::with_factory(super::Cli::command).var(ASKS).complete();
}

/// Completes the name of a stream table.
pub(super) fn stream_tables() -> ArgValueCompleter {
    ArgValueCompleter::new(|typed: &OsStr| names(typed, |e| vec![&e.relation]))
}

/// Completes the name of a table that stream tables read.
pub(super) fn sources() -> ArgValueCompleter {
    ArgValueCompleter::new(|typed: &OsStr| {
        names(typed, |e| e.dependencies.iter().map(|d| &d.relation).collect())
    })
}

/// Returns the names that begin with the typed text. Each name is returned with its schema. If the search
/// path finds the table, the name is also returned without the schema. If the server is too slow, the result
/// is empty, since a completion cannot show an error.
///
/// A shell inserts names into the command line without quoting them. So only names of small letters, digits
/// and underscores are offered. In such names no character has a special meaning, to the shell or to the
/// program.
fn names(typed: &OsStr, of: impl Fn(&Entry) -> Vec<&Relation>) -> Vec<CompletionCandidate> {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
        return Vec::new();
    };
    let read = runtime.block_on(async { tokio::time::timeout(PATIENCE, read_catalog()).await });
    // The runtime ends without waiting for a name resolver that does not answer.
    runtime.shutdown_background();
    let Ok(Some((registry, path))) = read else { return Vec::new() };
    let mut names = BTreeSet::new();
    for relation in registry.entries().filter(|e| e.own).flat_map(&of) {
        if !is_plain(&relation.schema) || !is_plain(&relation.name) {
            continue;
        }
        let all = || registry.entries().flat_map(&of).filter(|r| r.name == relation.name);
        let first = path.iter().find(|schema| all().any(|r| *r.schema == ***schema));
        if first.is_some_and(|schema| **schema == *relation.schema) {
            names.insert(relation.name.to_string());
        }
        names.insert(format!("{}.{}", relation.schema, relation.name));
    }
    let typed = typed.to_string_lossy();
    names.into_iter().filter(|n| n.starts_with(&*typed)).map(CompletionCandidate::new).collect()
}

fn is_plain(name: &str) -> bool {
    name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

/// Returns the stream tables and the search path of the database that the environment names. Returns `None`
/// if the command line names a database itself, since a shell that splits lines at colons does not pass the
/// whole URL.
async fn read_catalog() -> Option<(Registry, Vec<String>)> {
    if std::env::args_os().any(|a| a.to_string_lossy().starts_with("--database-url")) {
        return None;
    }
    let session = Session::new(Target::from_environment(None).ok()?.connect().await.ok()?);
    let path =
        session.client().query_one("SELECT pg_catalog.current_schemas(false)::pg_catalog.text[]", &[]).await;
    let trickle = Trickle::open(session, Settings::default()).await.ok()?;
    Some((trickle.registry().await.ok()?, path.ok()?.get(0)))
}
