//! Random histories of actions: writes, prepared transactions, changes of roles, migrations of sources,
//! changes of the stream tables themselves, and refreshes. Refreshes are killed, or run at the same time as
//! another refresh or a migration. The server dies, dumps are restored, and the catalog moves between program
//! and extension.
//!
//! After each refresh every stream table equals its query or gives the reason for its suspension. Trickle
//! makes no statement of a writer fail, and at the end of a history all hidden objects are dropped. A history
//! that breaks one of these rules is made shorter, and is printed as a script. `just histories N` plays many
//! histories.

mod actions;
mod play;

use crate::random::seeds::Seeds;
use crate::support::private::{each_version_beside, start_with};
use actions::{Action, History, history};
use futures_util::FutureExt;
use play::{COMPARED, EXCUSED, Play};
use std::panic::AssertUnwindSafe;
use trickle_client::throwaway::Server;

/// Plays a history, and returns its first fault.
async fn wrong(server: &mut Server, history: &History) -> Option<String> {
    let played = AssertUnwindSafe(async {
        let mut play = Play::begin(server, history).await;
        for action in &history.actions {
            play.act(action).await.map_err(|e| format!("{action}\n    {e}"))?;
        }
        play.end().await
    });
    match played.catch_unwind().await {
        Ok(Ok(())) => None,
        Ok(Err(wrong)) => Some(wrong),
        Err(panic) => Some(format!("panic: {:?}", panic.downcast_ref::<String>())),
    }
}

/// Greatest number of tries to leave out an action of a history.
const TRIES: usize = 120;

/// Removes actions from a history as long as the history still shows a fault. Returns the shorter history
/// with its fault.
async fn shorter(server: &mut Server, mut history: History, mut why: String) -> (History, String) {
    let mut tries = 0;
    let mut i = history.actions.len();
    while i > 0 && tries < TRIES {
        i -= 1;
        let mut fewer = history.clone();
        fewer.actions.remove(i);
        tries += 1;
        if let Some(w) = wrong(server, &fewer).await {
            (history, why) = (fewer, w);
        }
    }
    (history, why)
}

#[test]
fn random_histories_end_right_and_leave_nothing() {
    let seeds = Seeds { setting: "TRICKLE_HISTORIES", short: 16 };
    each_version_beside(async |binaries| {
        let from: u64 =
            std::env::var("TRICKLE_HISTORIES_FROM").ok().and_then(|n| n.parse().ok()).unwrap_or(0);
        let all = seeds.one_in(1).into_iter().map(|s| if seeds.is_long() { s + from } else { s });
        let (mut failed, mut played) = (Vec::new(), 0);
        let mut server = start_with(binaries, "histories", &["max_prepared_transactions=10"]).await;
        for seed in all {
            played += 1;
            let history = history(seed);
            let Some(why) = wrong(&mut server, &history).await else { continue };
            let (shortest, why) = shorter(&mut server, history, why).await;
            let script: Vec<String> = shortest.actions.iter().map(Action::to_string).collect();
            let History { is_free, short, unlogged, by_row, actions: _ } = shortest;
            let told = format!(
                "TRICKLE_SEED={seed} with {} ({}{}{}{}):\n{}\n    {why}",
                binaries.display(),
                if is_free { "any way, " } else { "deltas, " },
                if short { "short segments, " } else { "" },
                if unlogged { "unlogged, " } else { "" },
                if by_row { "by row" } else { "by statement" },
                script.join("\n")
            );
            println!("{told}\n");
            failed.push(told);
            if failed.len() >= 5 {
                break;
            }
        }
        let (compared, excused) = (COMPARED.get(), EXCUSED.get());
        println!(
            "{}: {played} histories, {compared} results compared, {excused} refreshes refused (of all servers so far)",
            binaries.display()
        );
        server.stop();
        assert!(compared >= played, "{compared} results of {played} histories were compared");
        assert!(failed.is_empty(), "{}", failed.join("\n\n"));
    });
}
