//! What long work says on standard error: a spinner or a bar on a terminal, lines elsewhere, nothing if that is wanted.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{IsTerminal, Write};
use std::time::Duration;
use trickle_client::locks::Progress;

/// Shows what goes on until it is dropped.
pub(crate) struct Meter {
    /// On a terminal.
    bar: Option<ProgressBar>,
    quiet: bool,
}

/// While nobody knows how much there is to do, and where somebody does.
const SPINNER: &str = "{spinner} {msg} {elapsed}";
const BAR: &str = "{spinner} {msg} {bar:30} {human_pos}/{human_len} rows, {eta} left";

impl Meter {
    pub(crate) fn new(quiet: bool) -> Meter {
        if quiet || !std::io::stderr().is_terminal() {
            return Meter { bar: None, quiet };
        }
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        restyle(&bar, SPINNER);
        Meter { bar: Some(bar), quiet }
    }

    /// What is going on from now on; of interest only to who sees it happen.
    pub(crate) fn begin(&self, what: impl Into<String>) {
        if let Some(bar) = &self.bar {
            bar.set_message(what.into());
            bar.enable_steady_tick(Duration::from_millis(120));
        }
    }
}

fn restyle(bar: &ProgressBar, template: &str) {
    // The templates above are well-formed: a test draws them.
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
}

impl Progress for Meter {
    fn say(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.println(line),
            None if self.quiet => {}
            // Where standard error is closed there is nobody left to tell.
            None => drop(writeln!(std::io::stderr(), "{line}")),
        }
    }

    fn rows(&self, done: u64, of: Option<u64>) {
        let (Some(bar), Some(of)) = (&self.bar, of) else { return };
        if bar.length().is_none() {
            restyle(bar, BAR);
        }
        bar.set_length(of.max(done));
        bar.set_position(done);
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
    use super::{BAR, SPINNER};
    use indicatif::ProgressStyle;

    #[test]
    fn the_templates_are_well_formed() {
        for t in [SPINNER, BAR] {
            assert!(ProgressStyle::with_template(t).is_ok(), "{t}");
        }
    }
}
