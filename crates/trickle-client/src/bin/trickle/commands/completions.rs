//! `trickle completions`, and what the shell asks for while somebody types.

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
use trickle_core::sql::{Ident, Qualified};

/// By this variable the script of a shell says that it asks.
const ASKS: &str = "TRICKLE_COMPLETE";

/// Nobody waits longer for a server to name its stream tables.
const PATIENCE: Duration = Duration::from_secs(1);

/// Print a script that completes commands, options and names of stream tables in a shell.
///
/// For bash, in ~/.bashrc: source <(trickle completions bash)
///
/// Names are those of the database that $DATABASE_URL, the PG… variables or --database-url before them name.
#[derive(Debug, clap::Args)]
pub(crate) struct Completions {
    /// The shell.
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

/// Answers a shell that asks how a line may go on, and ends then.
pub(crate) fn answer() {
    CompleteEnv::with_factory(crate::Cli::command).var(ASKS).complete();
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

/// The names that go on as was typed: with their schemas, and without where the search path finds them. None where no server
/// answers in time, since there is nowhere to tell why.
fn names(typed: &OsStr, of: impl Fn(&Entry) -> Vec<&Relation>) -> Vec<CompletionCandidate> {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
        return Vec::new();
    };
    let known = runtime.block_on(async { tokio::time::timeout(PATIENCE, known()).await });
    let Ok(Some((registry, path))) = known else { return Vec::new() };
    let mut names = BTreeSet::new();
    for relation in registry.entries().filter(|e| e.own).flat_map(&of) {
        let named = |r: &Relation| r.name == relation.name;
        let all = || registry.entries().flat_map(&of).filter(|r| named(r));
        let first = path.iter().find(|schema| all().any(|r| *r.schema == ***schema));
        if first.is_some_and(|schema| **schema == *relation.schema) {
            names.insert(Ident::new(&*relation.name).to_string());
        }
        names.insert(Qualified::new(&relation.schema, &relation.name).to_string());
    }
    let typed = typed.to_string_lossy();
    names.into_iter().filter(|n| n.starts_with(&*typed)).map(CompletionCandidate::new).collect()
}

/// What the catalog says, and the search path.
async fn known() -> Option<(Registry, Vec<String>)> {
    let session = Session::new(Target::from_environment(typed_url().as_deref()).ok()?.connect().await.ok()?);
    let path =
        session.client().query_one("SELECT pg_catalog.current_schemas(false)::pg_catalog.text[]", &[]).await;
    let trickle = Trickle::open(session, Settings::default()).await.ok()?;
    Some((trickle.registry().await.ok()?, path.ok()?.get(0)))
}

/// The database that the line names so far.
fn typed_url() -> Option<String> {
    let mut line = std::env::args().skip_while(|a| a != "--");
    let flag = line.find(|a| a.starts_with("--database-url"))?;
    flag.split_once('=').map(|(_, url)| url.to_owned()).or_else(|| line.next())
}
