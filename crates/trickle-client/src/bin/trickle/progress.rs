//! Shows the progress of long work on standard error. On a terminal this is a spinner or a bar, elsewhere a
//! line now and then. Under `--quiet` nothing is shown.

use indicatif::{BinaryBytes, ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{IsTerminal, Write};
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use trickle_client::progress::{Progress, ProgressReport};

/// The display of running work. The display ends when this value is dropped.
pub(crate) struct Meter {
    /// The spinner or bar on a terminal.
    bar: Option<ProgressBar>,
    quiet: bool,
    shown: Mutex<Shown>,
}

/// The state of the work when its progress was last shown.
#[derive(Default)]
struct Shown {
    what: String,
    /// The processes that the work was waiting for.
    waits_for: Vec<i32>,
    /// The age of the work when a line was last written because [`SELDOM`] had passed.
    at: Duration,
}

/// The template for work of unknown size, a spinner. For work of known size, `BAR` is used.
const SPINNER: &str = "{spinner} {wide_msg} {elapsed}";
const BAR: &str = "{spinner} {wide_msg} {bar:16} {bytes}/{total_bytes}, {eta} left";

/// The time between two lines about progress if there is no terminal.
const SELDOM: Duration = Duration::from_secs(60);

impl Meter {
    pub(crate) fn new(quiet: bool) -> Meter {
        let shown = Mutex::default();
        if quiet || !std::io::stderr().is_terminal() {
            return Meter { bar: None, quiet, shown };
        }
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        restyle(&bar, SPINNER);
        Meter { bar: Some(bar), quiet, shown }
    }

    /// Shows that the work with this description begins.
    pub(crate) fn begin(&self, what: impl Into<String>) {
        let what = what.into();
        if let Some(bar) = &self.bar {
            bar.set_message(what.clone());
            bar.enable_steady_tick(Duration::from_millis(120));
        }
        *self.shown.lock().unwrap_or_else(PoisonError::into_inner) = Shown { what, ..Shown::default() };
    }
}

/// Describes the work, with the process that the work waits for, else with the bytes that were stored.
fn told(what: &str, report: &ProgressReport) -> String {
    if let Some(first) = report.waits_for.first() {
        return format!("{what}, waiting: {}", first.line);
    }
    match report.written {
        Some(bytes) if bytes > 0 => format!("{what}, {} stored", BinaryBytes(bytes)),
        _ => what.to_owned(),
    }
}

/// Returns the line to write to standard error now, if a line is due. Standard error is no terminal here.
fn due(shown: &mut Shown, report: &ProgressReport) -> Option<String> {
    let total = report.waited + report.worked;
    let waits_for: Vec<i32> = report.waits_for.iter().map(|b| b.pid).collect();
    if !waits_for.is_empty() && shown.waits_for != waits_for {
        shown.waits_for = waits_for;
        return Some(told(&shown.what, report));
    }
    if total < shown.at + SELDOM {
        return None;
    }
    shown.at = total;
    let read = report.read.map_or_else(String::new, |(done, of)| {
        format!(", {} of {} read", BinaryBytes(done), BinaryBytes(of))
    });
    let (waited, worked) = (report.waited.as_secs(), report.worked.as_secs());
    let spent = format!("{worked} s of work, {waited} s of waiting");
    Some(format!("{}{read}, {spent}", told(&shown.what, report)))
}

fn restyle(bar: &ProgressBar, template: &str) {
    // Both templates are well-formed: a test draws them.
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
}

impl Progress for Meter {
    fn say(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.println(line),
            None if self.quiet => {}
            // Where standard error is closed, nobody is left to read it.
            None => drop(writeln!(std::io::stderr(), "{line}")),
        }
    }

    fn is_watched(&self) -> bool {
        !self.quiet
    }

    fn next(&self) -> Pin<Box<dyn Future<Output = ()> + '_>> {
        Box::pin(tokio::time::sleep(Duration::from_secs(1)))
    }

    fn at(&self, report: &ProgressReport) {
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(bar) = &self.bar else {
            if let Some(line) = due(&mut shown, report) {
                self.say(&line);
            }
            return;
        };
        bar.set_message(told(&shown.what, report));
        match report.read {
            Some((done, of)) => {
                if bar.length().is_none() {
                    restyle(bar, BAR);
                }
                bar.set_length(of);
                bar.set_position(done);
            }
            None if bar.length().is_some() => {
                bar.unset_length();
                restyle(bar, SPINNER);
            }
            None => {}
        }
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{BAR, SPINNER, Shown, due};
    use indicatif::ProgressStyle;
    use std::time::Duration;
    use trickle_client::progress::{Blocker, ProgressReport};

    #[test]
    fn the_templates_are_well_formed() {
        for t in [SPINNER, BAR] {
            assert!(ProgressStyle::with_template(t).is_ok(), "{t}");
        }
    }

    #[test]
    fn lines_come_seldom_and_once_for_whom_it_waits() {
        let mut shown = Shown { what: "filling s".into(), ..Shown::default() };
        let mut at = ProgressReport { worked: Duration::from_secs(5), ..ProgressReport::default() };
        assert_eq!(due(&mut shown, &at), None);
        // The description of the blocking process changes with every look, since it contains the age of the
        // transaction.
        for age in 7..9 {
            let line = format!("process 12 (ann), idle in transaction for {age} s, holds a lock on a");
            at.waits_for = vec![Blocker { pid: 12, line }];
            at.waited += Duration::from_secs(1);
            let told = due(&mut shown, &at);
            assert_eq!(told.is_some(), age == 7, "{told:?}");
        }
        at.waits_for.clear();
        (at.worked, at.read) = (Duration::from_secs(70), Some((1 << 20, 4 << 20)));
        let told = due(&mut shown, &at).unwrap();
        assert_eq!(told, "filling s, 1.00 MiB of 4.00 MiB read, 70 s of work, 2 s of waiting");
        assert_eq!(due(&mut shown, &at), None);
    }
}
