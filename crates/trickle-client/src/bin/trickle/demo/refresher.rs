//! The refresher of the demo: `trickle run`, as a process of its own that can be killed.

use crate::failure::Failure;
use std::process::{Child, Command, Stdio};

/// A shell script that runs a program until standard input ends, and that kills the program with `kill -9` at
/// the end of standard input. Standard input is a pipe whose other end the demo holds. So the refresher ends
/// with the demo, even if the demo itself is killed.
const KEEPER: &str = r#"
trap '' INT HUP TERM
"$@" &
refresher=$!
read -r _
kill -KILL "$refresher"
"#;

/// A running refresher.
pub(crate) struct Refresher(Child);

impl Refresher {
    /// Starts this program as the refresher of a database.
    ///
    /// # Errors
    /// There is no shell, or the file of this program is gone.
    pub(crate) fn start(url: &str) -> Result<Refresher, Failure> {
        let fail = |e| Failure::failed(format!("cannot start a refresher: {e}"));
        let program = std::env::current_exe().map_err(fail)?;
        let mut keeper = Command::new("sh");
        keeper.args(["-c", KEEPER, "keeper"]).arg(program).args(["run", "--quiet", "--database-url", url]);
        // The refresher's messages are dropped, since the last ones would be about a server that the demo has
        // stopped.
        keeper.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        keeper.spawn().map(Refresher).map_err(fail)
    }

    /// Kills the refresher, in the middle of a refresh or between two.
    ///
    /// # Errors
    /// The errors of the system.
    pub(crate) fn kill(mut self) -> Result<(), Failure> {
        drop(self.0.stdin.take());
        let ended = self.0.wait();
        ended.map(drop).map_err(|e| Failure::failed(format!("cannot kill the refresher: {e}")))
    }
}
