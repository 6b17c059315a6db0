//! The only error type of the crate: an opaque type with a message, DETAIL, HINT, SQLSTATE and a span in the
//! query.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A byte range of the query text, with the line and the column of its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Span {
    /// First byte.
    pub start: usize,
    /// The byte after the last byte.
    pub end: usize,
    /// Line of `start`, from 1.
    pub line: u32,
    /// Column of `start` in characters, from 1.
    pub column: u32,
}

/// The class of an error. The type is private, so that classes can be refined without breaking callers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Kind {
    Syntax,
    Name,
    Type,
    TooComplex,
    TooLarge,
    Plan,
    Timed,
    Data,
    Setting,
    Cycle,
    Internal,
}

/// An error of trickle. It names the object, and says what happened, why, and what the user can do.
#[derive(Clone, Debug)]
pub struct Error {
    inner: Box<Inner>,
}

#[derive(Clone, Debug)]
struct Inner {
    kind: Kind,
    sqlstate: &'static str,
    message: String,
    detail: Option<String>,
    hint: Option<String>,
    span: Option<Span>,
    doubt: Option<Doubt>,
}

/// An object that an error reports as not existing, but that may exist: no server was asked.
#[derive(Clone, Debug)]
pub(crate) struct Doubt {
    /// The object, as a noun.
    pub(crate) what: String,
    /// The reason for the doubt.
    pub(crate) why: String,
}

/// `std::result::Result` with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    fn new(kind: Kind, sqlstate: &'static str, message: impl Into<String>) -> Self {
        Error {
            inner: Box::new(Inner {
                kind,
                sqlstate,
                message: message.into(),
                detail: None,
                hint: None,
                span: None,
                doubt: None,
            }),
        }
    }

    /// Reports that the text is not SQL (42601).
    pub(crate) fn syntax(message: impl Into<String>) -> Self {
        Self::new(Kind::Syntax, "42601", message)
    }
    /// Reports that a table does not exist (42P01).
    pub(crate) fn unknown_table(message: impl Into<String>) -> Self {
        Self::new(Kind::Name, "42P01", message)
    }
    /// Reports that a column does not exist (42703).
    pub(crate) fn unknown_column(message: impl Into<String>) -> Self {
        Self::new(Kind::Name, "42703", message)
    }
    /// Reports that a name means more than one thing (42702).
    pub(crate) fn ambiguous(message: impl Into<String>) -> Self {
        Self::new(Kind::Name, "42702", message)
    }
    /// Reports that two columns of a result have one name (42701).
    pub fn duplicate_column(message: impl Into<String>) -> Self {
        Self::new(Kind::Name, "42701", message)
    }
    /// Reports that two tables of a FROM have one name (42712).
    pub(crate) fn duplicate_alias(message: impl Into<String>) -> Self {
        Self::new(Kind::Name, "42712", message)
    }
    /// Reports that a query names more columns than a relation has (42P10).
    pub(crate) fn missing_columns(message: impl Into<String>) -> Self {
        Self::new(Kind::Name, "42P10", message)
    }
    /// Reports that a function or operator does not exist for these argument types (42883).
    pub(crate) fn unknown_function(message: impl Into<String>) -> Self {
        Self::new(Kind::Name, "42883", message)
    }
    /// Reports that types do not match (42804).
    pub(crate) fn type_mismatch(message: impl Into<String>) -> Self {
        Self::new(Kind::Type, "42804", message)
    }
    /// Reports that SQL forbids a well-formed query, such as one with an ungrouped column (42803).
    pub(crate) fn grouping(message: impl Into<String>) -> Self {
        Self::new(Kind::Type, "42803", message)
    }
    /// Reports a query that is deeper or longer than the engine accepts (54001).
    pub(crate) fn too_complex(message: impl Into<String>) -> Self {
        Self::new(Kind::TooComplex, "54001", message)
    }
    /// Reports that an object has more parts than PostgreSQL accepts (SQLSTATE class 54).
    pub(crate) fn too_many(sqlstate: &'static str, message: impl Into<String>) -> Self {
        Self::new(Kind::TooComplex, sqlstate, message)
    }
    /// Reports that the plan of a query has more operators or columns than the engine accepts (54001).
    pub(crate) fn too_large(most: usize, of: &str) -> Self {
        Self::new(Kind::TooLarge, "54001", format!("a plan of more than {most} {of}"))
    }
    /// Reports that a plan breaks an operator's contract (XX000). The cause is a bug in a rule, which is
    /// found before the rule can give a wrong result.
    pub fn plan(message: impl Into<String>) -> Self {
        Self::new(Kind::Plan, "XX000", message)
    }
    /// Reports that an operator reads the clock in a place where it must not (XX000). No delta would contain
    /// the rows of this operator that change by the passing of time.
    pub(crate) fn timed(op: &str) -> Self {
        Self::new(Kind::Timed, "XX000", format!("{op} reads the clock"))
    }
    /// Reports an error that an expression raised: division by zero, overflow, a bad cast (SQLSTATE class 22
    /// or 21).
    pub(crate) fn data(sqlstate: &'static str, message: impl Into<String>) -> Self {
        Self::new(Kind::Data, sqlstate, message)
    }
    /// Reports that a setting, schedule or option is not valid (22023).
    pub fn setting(message: impl Into<String>) -> Self {
        Self::new(Kind::Setting, "22023", message)
    }
    /// Reports a window that SQL forbids (42P20).
    pub(crate) fn windowing(message: impl Into<String>) -> Error {
        Self::new(Kind::Type, "42P20", message)
    }
    /// Reports that an object of this name does not exist (42704).
    pub(crate) fn unknown_object(message: impl Into<String>) -> Error {
        Self::new(Kind::Name, "42704", message)
    }
    /// Reports a reference to a column or position where SQL forbids such a reference (42P10).
    pub(crate) fn invalid_reference(message: impl Into<String>) -> Error {
        Self::new(Kind::Type, "42P10", message)
    }
    /// Reports that an object is not of the required kind (42809).
    pub(crate) fn wrong_object(message: impl Into<String>) -> Error {
        Self::new(Kind::Type, "42809", message)
    }
    /// Reports that PostgreSQL itself does not implement a construct (0A000).
    pub(crate) fn unsupported(message: impl Into<String>) -> Error {
        Self::new(Kind::Type, "0A000", message)
    }
    /// Reports that stream tables depend on each other in a cycle, or that a query refers to itself in a form
    /// that SQL forbids (42P19).
    pub fn cycle(message: impl Into<String>) -> Self {
        Self::new(Kind::Cycle, "42P19", message)
    }
    /// Reports that other objects depend on the object to be dropped (2BP01).
    pub(crate) fn dependents(message: impl Into<String>) -> Self {
        Self::new(Kind::Name, "2BP01", message)
    }
    /// Reports a state that cannot occur (XX000).
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(Kind::Internal, "XX000", message)
    }

    /// Adds a DETAIL, which gives the facts behind the message.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<String>) -> Self {
        self.inner.detail = Some(detail.into());
        self
    }
    /// Adds a HINT, which says what the user can do.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.inner.hint = Some(hint.into());
        self
    }
    /// Adds the position in the query to which the error refers. If the error already has a position, that
    /// position stays.
    #[must_use]
    pub fn at(mut self, span: Span) -> Self {
        self.inner.span.get_or_insert(span);
        self
    }

    /// Notes that the server may have the object `what`, which does not exist according to this error. `why`
    /// is the reason for this doubt. Without a reason, the error stays unchanged.
    #[must_use]
    pub(crate) fn doubted(mut self, what: impl Into<String>, why: Option<String>) -> Self {
        self.inner.doubt = why.map(|why| Doubt { what: what.into(), why });
        self
    }
    pub(crate) fn doubt(&self) -> Option<&Doubt> {
        self.inner.doubt.as_ref()
    }

    /// Returns the SQLSTATE that PostgreSQL would report for the same mistake.
    pub fn sqlstate(&self) -> &'static str {
        self.inner.sqlstate
    }
    /// Returns the message, one sentence without a full stop.
    pub fn message(&self) -> &str {
        &self.inner.message
    }
    /// Returns the facts behind the message (DETAIL).
    pub fn detail_text(&self) -> Option<&str> {
        self.inner.detail.as_deref()
    }
    /// Returns the advice on what to do about the error (HINT).
    pub fn hint_text(&self) -> Option<&str> {
        self.inner.hint.as_deref()
    }
    /// Returns the place in the query to which the error refers.
    pub fn span(&self) -> Option<Span> {
        self.inner.span
    }
    /// Whether data caused the error (SQLSTATE class 21 or 22). If a delta raises such an error, a recompute
    /// replaces the delta.
    pub fn is_data(&self) -> bool {
        self.inner.kind == Kind::Data
    }
    /// Whether the text could not be parsed.
    pub fn is_syntax(&self) -> bool {
        self.inner.kind == Kind::Syntax
    }
    /// Whether the plan of the query is too large for deltas. Such a query can still be recomputed.
    pub fn is_too_large(&self) -> bool {
        self.inner.kind == Kind::TooLarge
    }
    /// Whether the error was made by [`Error::timed`].
    pub(crate) fn is_timed(&self) -> bool {
        self.inner.kind == Kind::Timed
    }
    /// Whether the error reports a bug in this crate that a check of a contract found.
    pub fn is_internal(&self) -> bool {
        matches!(self.inner.kind, Kind::Plan | Kind::Timed | Kind::Internal)
    }
}

impl std::error::Error for Error {}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(s) = self.inner.span {
            write!(f, "{}:{}: ", s.line, s.column)?;
        }
        f.write_str(&self.inner.message)?;
        if let Some(d) = &self.inner.detail {
            write!(f, "\nDETAIL: {d}")?;
        }
        if let Some(h) = &self.inner.hint {
            write!(f, "\nHINT: {h}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Error, Span};

    #[test]
    fn message_detail_hint_and_place() {
        let e = Error::unknown_table("relation \"ordres\" does not exist")
            .at(Span { start: 14, end: 20, line: 1, column: 15 })
            .hint("Did you mean \"orders\"?");
        assert_eq!(e.to_string(), "1:15: relation \"ordres\" does not exist\nHINT: Did you mean \"orders\"?");
        assert_eq!(e.sqlstate(), "42P01");
    }
}
