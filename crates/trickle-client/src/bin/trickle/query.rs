//! The query of a command line, as text or from a file, and messages about places in the query.

use crate::failure::Failure;
use crate::finding::{Finding, Place, Severity, SqlFile};
use crate::script;
use serde_json::Value;
use trickle_client::Error;
use trickle_core::Reason;
use trickle_core::parse::{Comment, statements};

/// A query, as text or in a file.
#[derive(Debug, clap::Args)]
#[group(id = "typed", multiple = false)]
pub(crate) struct Source {
    /// Text of the query.
    #[arg(long, value_name = "SQL", allow_hyphen_values = true)]
    query: Option<String>,
    /// File with the query; - is standard input.
    #[arg(long, value_name = "FILE")]
    file: Option<String>,
}

impl Source {
    /// Reads the query, if one was given.
    pub(crate) fn read(&self) -> Result<Option<Typed>, Failure> {
        Ok(match (&self.query, &self.file) {
            (Some(text), _) => Some(Typed::new("query", text.clone())),
            (None, Some(path)) => Some(Typed::of_file(path)?),
            (None, None) => None,
        })
    }
}

/// A query, with the name that messages use for it.
pub(crate) struct Typed {
    files: [SqlFile; 1],
    /// The comments before the query, if the query comes from a file.
    comments: Vec<Comment>,
}

impl Typed {
    pub(crate) fn new(name: &str, text: String) -> Typed {
        Typed { files: [SqlFile { name: name.to_owned(), text }], comments: Vec::new() }
    }

    /// Reads the query that a file holds, or standard input.
    pub(crate) fn of_file(path: &str) -> Result<Typed, Failure> {
        Ok(Typed::new(path, script::read(path)?).with_comments())
    }

    fn with_comments(self) -> Typed {
        // A text that cannot be split into statements is refused later, when the text is parsed as a query.
        let first = statements(self.text()).unwrap_or_default().into_iter().next();
        Typed { comments: first.map(|s| s.comments).unwrap_or_default(), ..self }
    }

    /// Returns the value of a comment `-- key: value` before the query.
    pub(crate) fn header(&self, key: &str) -> Option<String> {
        script::header(&self.comments, key).map(|(value, _)| value.to_owned())
    }

    /// Refuses a comment before the query whose key is probably a misspelling of a key that has a meaning.
    ///
    /// # Errors
    /// There is such a comment.
    pub(crate) fn require_known_headers(&self) -> Result<(), Failure> {
        match script::misspelt(&self.comments) {
            None => Ok(()),
            Some((e, comment)) => Err(self.refused(Error::from(e).at(comment.span))),
        }
    }

    pub(crate) fn text(&self) -> &str {
        &self.files[0].text
    }

    fn whole(&self) -> Place {
        Place { file: 0, span: 0..self.text().len(), prefix: 0 }
    }

    /// Returns the failure for an error. If a place in the query is to blame, the failure shows this place.
    pub(crate) fn refused(&self, e: Error) -> Failure {
        let (Some(span), true) = (e.span(), e.is_input()) else { return e.into() };
        let code = e.sqlstate().unwrap_or("input");
        let finding = Finding {
            detail: e.detail_text().map(str::to_owned),
            help: e.hint_text().map(str::to_owned),
            ..self.whole().finding(&self.files, Some(span), Severity::Error, code, e.message())
        };
        Failure::found(&[finding], &self.files)
    }

    /// Draws the reasons why the query is not incremental.
    pub(crate) fn reasons(&self, reasons: &[Reason], colour: bool) -> String {
        self.findings(reasons).iter().map(|f| f.render(&self.files, colour)).collect()
    }

    /// Returns the reasons why the query is not incremental as JSON, the form for programs.
    pub(crate) fn reasons_json(&self, reasons: &[Reason]) -> Vec<Value> {
        self.findings(reasons).iter().map(|f| f.to_json(&self.files)).collect()
    }

    fn findings(&self, reasons: &[Reason]) -> Vec<Finding> {
        reasons.iter().map(|r| self.whole().reason(&self.files, r)).collect()
    }
}
