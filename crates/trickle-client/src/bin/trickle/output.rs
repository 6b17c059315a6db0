//! Results: tables and text for people, one JSON document for programs. All output is written to standard
//! output at once, at the end, so that a failure leaves no incomplete result. The exception is the plan of
//! `trickle apply`, which is shown before its steps are taken.

use crate::colour::{stderr_colour, wants_colour};
use crate::failure::Failure;
use crate::settings::Given;
use comfy_table::{Attribute, Cell, Color, ContentArrangement, Table, presets};
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use trickle_client::connect::{Secret, Target};

/// The result of a command, and the options for its form.
pub(crate) struct Output {
    json: bool,
    quiet: bool,
    colour: bool,
    surroundings: Surroundings,
    text: String,
}

/// The options that name the server and the database, and the settings for the work in the database.
#[derive(Debug, Default)]
pub(crate) struct Surroundings {
    pub(crate) database_url: Option<Secret>,
    /// The file with settings.
    pub(crate) config: Option<PathBuf>,
    pub(crate) flags: Given,
}

/// The judgement that the colour of a value shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    /// The value is as it should be.
    Good,
    /// The value deserves a look.
    Warning,
    /// The value shows that something is wrong.
    Bad,
}

impl Output {
    pub(crate) fn new(json: bool, quiet: bool, surroundings: Surroundings) -> Output {
        let colour = wants_colour(std::io::stdout().is_terminal());
        Output { json, quiet, colour, surroundings, text: String::new() }
    }
    /// Whether a program reads the result.
    pub(crate) fn is_json(&self) -> bool {
        self.json
    }
    /// Whether only the wrong parts of the result are wanted.
    pub(crate) fn is_quiet(&self) -> bool {
        self.quiet
    }
    /// Whether the result is for a terminal that shows colours.
    pub(crate) fn colour(&self) -> bool {
        self.colour
    }

    /// Returns the server that the options and the environment name.
    pub(crate) fn target(&self) -> Result<Target, Failure> {
        Ok(Target::from_environment(self.surroundings.database_url.as_ref().map(Secret::reveal))?)
    }

    /// Returns the settings of the flags, completed by the settings of the file.
    pub(crate) fn settings(&self) -> Result<Given, Failure> {
        Given::resolve(self.surroundings.flags.clone(), self.surroundings.config.as_deref())
    }

    /// Adds text for people.
    pub(crate) fn print(&mut self, text: impl AsRef<str>) {
        self.text += text.as_ref();
    }

    /// Adds the document for programs.
    pub(crate) fn document(&mut self, value: &serde_json::Value) {
        self.text += &format!("{value:#}\n");
    }

    /// Adds a table: a header, and rows whose cells may have a tone.
    pub(crate) fn table<const N: usize>(
        &mut self,
        header: [&str; N],
        rows: Vec<[(String, Option<Tone>); N]>,
    ) {
        self.drawn(presets::NOTHING, &header, rows.into_iter().map(Vec::from).collect());
    }

    /// Adds a table in a box.
    #[cfg(feature = "bench")]
    pub(crate) fn boxed(&mut self, header: &[&str], rows: Vec<Vec<(String, Option<Tone>)>>) {
        self.drawn(presets::UTF8_FULL_CONDENSED, header, rows);
    }

    fn drawn(&mut self, preset: &str, header: &[&str], rows: Vec<Vec<(String, Option<Tone>)>>) {
        let mut table = Table::new();
        table.load_preset(preset).set_content_arrangement(ContentArrangement::Dynamic);
        if self.colour {
            table.enforce_styling();
        } else {
            table.force_no_tty();
        }
        let bold = |text: &str| Cell::new(text).add_attribute(Attribute::Bold);
        table.set_header(header.iter().copied().map(bold));
        for row in rows {
            table.add_row(row.into_iter().map(|(text, tone)| match tone {
                None => Cell::new(text),
                Some(Tone::Good) => Cell::new(text).fg(Color::Green),
                Some(Tone::Warning) => Cell::new(text).fg(Color::Yellow),
                Some(Tone::Bad) => Cell::new(text).fg(Color::Red),
            }));
        }
        if preset == presets::NOTHING {
            for column in table.column_iter_mut() {
                column.set_padding((0, 2));
            }
        }
        for line in table.lines() {
            self.text += line.trim_end();
            self.text.push('\n');
        }
    }

    /// Writes a text to standard error, while the rest of the work goes on. The text is an error of one part
    /// of the work, or a fact for the user.
    pub(crate) fn remark(&self, text: &str) {
        // If standard error is closed, nobody is left to read the text.
        drop(std::io::stderr().write_all(text.as_bytes()));
    }

    /// Writes the failure of one part of the work to standard error, while the rest of the work goes on.
    pub(crate) fn fail(&self, failure: &Failure) {
        self.remark(&if self.json { failure.to_json() } else { failure.render(stderr_colour()) });
    }

    /// Writes the result so far. A closed pipe is no failure, since a reader such as `head` closes its pipe
    /// early.
    pub(crate) fn finish(&mut self) -> Result<(), Failure> {
        let (mut out, text) = (std::io::stdout().lock(), std::mem::take(&mut self.text));
        match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
                Err(Failure::failed(format!("cannot write the result: {e}")))
            }
            _ => Ok(()),
        }
    }
}

/// Returns a duration in milliseconds for programs, exact to the microsecond.
pub(crate) fn milliseconds(d: std::time::Duration) -> f64 {
    d.as_micros() as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use trickle_engine::words::{count, duration};

    #[test]
    fn durations_and_counts_read_well() {
        let ms = |n| duration(Duration::from_millis(n));
        assert_eq!(duration(Duration::from_micros(840)), "840 µs");
        assert_eq!((ms(12), ms(3_400), ms(59_940)), ("12 ms".into(), "3.4 s".into(), "59.9 s".into()));
        assert_eq!((ms(125_000), ms(120_000)), ("2 min 5 s".into(), "2 min".into()));
        assert_eq!((ms(11_520_000), ms(187_200_000)), ("3 h 12 min".into(), "2 d 4 h".into()));
        let rows = |n| count(n, "row", "rows");
        assert_eq!((rows(0), rows(1), rows(999)), ("0 rows".into(), "1 row".into(), "999 rows".into()));
        assert_eq!((rows(1_000), rows(1_234_567)), ("1,000 rows".into(), "1,234,567 rows".into()));
    }

    #[test]
    fn a_table_is_aligned_and_plain_where_colour_is_not_wanted() {
        let mut out = Output {
            json: false,
            quiet: false,
            colour: false,
            surroundings: Surroundings::default(),
            text: String::new(),
        };
        let cell = |t: &str| (t.to_owned(), Some(Tone::Good));
        out.table(["check", "result"], vec![[cell("server"), cell("ok")], [cell("é"), cell("x y")]]);
        assert_eq!(out.text, "check   result\nserver  ok\né       x y\n");
    }
}
