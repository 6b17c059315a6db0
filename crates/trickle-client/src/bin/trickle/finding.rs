//! Messages about places in a file, drawn like a compiler's diagnostics.

use ariadne::{CharSet, Color, Config, IndexType, Label, Report, ReportKind};
use serde_json::{Value, json};
use std::ops::Range;
use trickle_core::{Cause, Error, Reason, ReasonKind, Span};

/// The severity of a finding. The most severe comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Severity {
    /// The input cannot be used.
    Error,
    /// A query is not incremental.
    FullRefresh,
    /// Only a server can say whether a query is incremental.
    Undecided,
    /// Something was not checked.
    Warning,
    /// The input can be used; the finding only gives advice.
    Advice,
}

impl Severity {
    fn name(self) -> &'static str {
        match self {
            Severity::Error => "error",
            Severity::FullRefresh => "full-refresh",
            Severity::Undecided => "undecided",
            Severity::Warning => "warning",
            Severity::Advice => "advice",
        }
    }

    fn kind(self) -> ReportKind<'static> {
        match self {
            Severity::Error => ReportKind::Error,
            Severity::FullRefresh => ReportKind::Custom("Full refresh", Color::Magenta),
            Severity::Undecided => ReportKind::Custom("Undecided", Color::Magenta),
            Severity::Warning => ReportKind::Warning,
            Severity::Advice => ReportKind::Advice,
        }
    }

    fn colour(self) -> Color {
        match self {
            Severity::Error => Color::Red,
            Severity::FullRefresh | Severity::Undecided => Color::Magenta,
            Severity::Warning => Color::Yellow,
            Severity::Advice => Color::Cyan,
        }
    }
}

/// A text that findings point into.
#[derive(Clone, Debug)]
pub(crate) struct SqlFile {
    /// The name of the file, as the user wrote it.
    pub(crate) name: String,
    pub(crate) text: String,
}

/// One message about a place in a file.
#[derive(Clone, Debug)]
pub(crate) struct Finding {
    /// The index of the file among all files that were read.
    pub(crate) file: usize,
    /// The place, in bytes of the file.
    pub(crate) span: Range<usize>,
    pub(crate) severity: Severity,
    /// The SQLSTATE of an error. For any other finding, a word that does not change between versions.
    pub(crate) code: String,
    pub(crate) message: String,
    /// The text that the drawing has at the place.
    pub(crate) label: Option<&'static str>,
    pub(crate) detail: Option<String>,
    pub(crate) help: Option<String>,
}

/// The place of a parsed text in a file.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) file: usize,
    /// The bytes of the file that were parsed.
    pub(crate) span: Range<usize>,
    /// The number of bytes that were put in front of the file's bytes before parsing.
    pub(crate) prefix: usize,
}

impl Place {
    /// Translates a span of the parsed text into a span of the file.
    pub(crate) fn locate(&self, span: Span) -> Range<usize> {
        let at = |i: usize| (self.span.start + i.saturating_sub(self.prefix)).min(self.span.end);
        at(span.start)..at(span.end)
    }

    /// Returns the first line of the place, for messages without a span of their own.
    fn head(&self, files: &[SqlFile]) -> Range<usize> {
        let text = &files[self.file].text[self.span.clone()];
        let line = text.lines().next().map_or(0, |l| l.trim_end().len());
        self.span.start..self.span.start + line
    }

    pub(crate) fn finding(
        &self,
        files: &[SqlFile],
        span: Option<Span>,
        severity: Severity,
        code: impl Into<String>,
        message: impl Into<String>,
    ) -> Finding {
        Finding {
            file: self.file,
            span: span.map_or_else(|| self.head(files), |s| self.locate(s)),
            severity,
            code: code.into(),
            message: message.into(),
            label: None,
            detail: None,
            help: None,
        }
    }

    /// Makes the finding for a text that PostgreSQL would refuse.
    pub(crate) fn error(&self, files: &[SqlFile], e: &Error) -> Finding {
        Finding {
            detail: e.detail_text().map(str::to_owned),
            help: e.hint_text().map(str::to_owned),
            ..self.finding(files, e.span(), Severity::Error, e.sqlstate(), e.message())
        }
    }

    /// Makes the finding for a reason why a query is not incremental.
    pub(crate) fn reason(&self, files: &[SqlFile], reason: &Reason) -> Finding {
        let why = "this is why the query is recomputed as a whole";
        let (severity, code, label) = match (reason.cause, reason.kind) {
            (Cause::Undecided, _) => (Severity::Undecided, "undecided", "no server was asked about this"),
            (_, ReasonKind::NotYet) => (Severity::FullRefresh, "not-yet", why),
            (_, ReasonKind::Never) => (Severity::FullRefresh, "never", why),
        };
        let message = format!("{} {}", reason.construct, reason.predicate());
        Finding {
            help: Some(reason.help.clone()),
            label: Some(label),
            ..self.finding(files, reason.span, severity, code, message)
        }
    }
}

impl Finding {
    /// Draws the finding for people, with colours and lines for a terminal.
    pub(crate) fn render(&self, files: &[SqlFile], colour: bool) -> String {
        let name = || files[self.file].name.clone();
        let charset = if colour { CharSet::Unicode } else { CharSet::Ascii };
        let config = Config::new().with_color(colour).with_index_type(IndexType::Byte).with_char_set(charset);
        // A label without a text would not underline the place.
        let label = Label::new((name(), self.span.clone()))
            .with_message(self.label.unwrap_or("here"))
            .with_color(self.severity.colour());
        let mut report = Report::build(self.severity.kind(), (name(), self.span.clone()))
            .with_config(config)
            .with_code(&self.code)
            .with_message(&self.message)
            .with_label(label);
        if let Some(detail) = &self.detail {
            report = report.with_note(detail);
        }
        if let Some(help) = &self.help {
            report = report.with_help(help);
        }
        let mut text = Vec::new();
        let sources = ariadne::sources(files.iter().map(|f| (f.name.clone(), f.text.as_str())));
        if report.finish().write(sources, &mut text).is_err() {
            // Drawing fails only if the finding's file is not among `files`. In this case the message stands
            // alone.
            return format!("{}: {}\n", self.severity.name(), self.message);
        }
        let text = String::from_utf8_lossy(&text);
        let plain = |line: &str| anstream::adapter::strip_str(line).to_string();
        let lines = text.lines().map(|l| if colour { l.to_owned() } else { plain(l) });
        lines.map(|l| format!("{}\n", l.trim_end())).collect()
    }

    /// Returns the SQLSTATE, if the finding is an error that has one.
    pub(crate) fn sqlstate(&self) -> Option<String> {
        (self.severity == Severity::Error && self.code.len() == 5).then(|| self.code.clone())
    }

    /// Returns the finding as JSON, the form for programs. Line and column count from 1, columns in
    /// characters.
    pub(crate) fn to_json(&self, files: &[SqlFile]) -> Value {
        let file = &files[self.file];
        let before = &file.text[..self.span.start.min(file.text.len())];
        let line_start = before.rfind('\n').map_or(0, |i| i + 1);
        json!({
            "file": file.name,
            "line": before.matches('\n').count() + 1,
            "column": before[line_start..].chars().count() + 1,
            "start": self.span.start,
            "end": self.span.end,
            "severity": self.severity.name(),
            "code": self.code,
            "message": self.message,
            "detail": self.detail,
            "help": self.help,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(span: Range<usize>) -> Finding {
        Finding {
            file: 0,
            span,
            severity: Severity::Advice,
            code: "code".into(),
            message: "the message".into(),
            label: None,
            detail: None,
            help: Some("the help".into()),
        }
    }

    fn file(text: &str) -> [SqlFile; 1] {
        [SqlFile { name: "f.sql".into(), text: text.into() }]
    }

    /// Draws every place of several texts. No place makes the drawing crate fail.
    #[test]
    fn every_place_can_be_drawn() {
        for text in ["", "\n", "a", "é\tb\r\nç\n\nx", "SELECT '\u{1f600}'", "\u{feff}a\u{301}\n"] {
            let files = file(text);
            let ends: Vec<usize> = (0..=text.len()).filter(|i| text.is_char_boundary(*i)).collect();
            for start in &ends {
                for end in ends.iter().filter(|e| *e >= start) {
                    for colour in [false, true] {
                        let drawn = finding(*start..*end).render(&files, colour);
                        assert!(
                            drawn.contains("the message") && drawn.contains("the help"),
                            "{text:?} {drawn}"
                        );
                        assert!(colour || !drawn.contains('\x1b'), "{drawn:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn lines_and_columns_count_characters_from_1() {
        let files = file("é\nçx y");
        let place = |start| {
            let f = finding(start..start + 1).to_json(&files);
            (f["line"].as_u64(), f["column"].as_u64())
        };
        assert_eq!((place(0), place(5)), ((Some(1), Some(1)), (Some(2), Some(2))));
    }

    #[test]
    fn a_place_in_a_rewritten_text_is_one_in_the_file() {
        let place = Place { file: 0, span: 10..20, prefix: 15 };
        let span = |start, end| Span { start, end, line: 1, column: 1 };
        assert_eq!(place.locate(span(15, 18)), 10..13);
        // A span outside the place is moved to the nearest end of the place.
        assert_eq!((place.locate(span(0, 3)), place.locate(span(24, 40))), (10..10, 19..20));
    }
}
