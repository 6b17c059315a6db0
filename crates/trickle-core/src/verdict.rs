//! The reasons why a valid query is not refreshed by deltas. Each reason is a value with a position in the
//! query. There is no silent fallback.

use crate::error::{Error, Span};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Whether a later version of the engine may refresh the query by deltas.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ReasonKind {
    /// The engine does not support the construct yet.
    NotYet,
    /// No version can maintain the construct, since its value depends on more than the data.
    Never,
}

/// The kind of a construct, which decides whether a stream table can store the result of its query at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Cause {
    /// The engine has no rule for the construct, though the tables alone determine the result of the query.
    Construct,
    /// The value of the construct differs each time the query runs, so no stored result equals it.
    Volatile,
    /// The construct does more than read: it writes or locks.
    Effect,
    /// The value of the construct depends on the search path. Each refresh sets its own search path, so the
    /// value would differ from the user's value.
    SearchPath,
    /// The value of the construct depends on the clock, the session or other facts that a function reads. The
    /// value may therefore change while all tables stay the same.
    Surroundings,
    /// The construct is a relation whose changes cannot be captured.
    Source,
    /// The engine cannot read the construct, so it does not know on which facts the result depends.
    Unread,
    /// The engine does not know whether the construct exists, since no server was asked.
    Undecided,
}

/// A construct of a query that prevents deltas.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// The position in the query. `None` for a construct inside a view that was expanded, and for the query
    /// as a whole.
    pub span: Option<Span>,
    /// Whether the answer is "not yet" or "never".
    pub kind: ReasonKind,
    /// The kind of the construct.
    pub cause: Cause,
    /// The construct, as a noun: `window functions`, `function random()`.
    pub construct: String,
    /// Advice to the user, in one sentence.
    pub help: String,
}

impl Reason {
    /// Builds the reason for a query whose plan, or whose delta's plan, is too large. The error must come
    /// from [`Error::too_large`].
    pub(crate) fn too_large(e: &Error) -> Reason {
        Reason {
            span: None,
            kind: ReasonKind::NotYet,
            cause: Cause::Construct,
            construct: e.message().to_owned(),
            help: "Make a part of the query a stream table of its own, or refresh the table in full."
                .to_owned(),
        }
    }

    /// Returns the predicate of a sentence about the construct.
    pub fn predicate(&self) -> &'static str {
        match (self.cause, self.kind) {
            (Cause::Undecided, _) => "is not known offline: the server decides",
            (_, ReasonKind::NotYet) => "cannot be maintained incrementally yet",
            (_, ReasonKind::Never) => "can never be maintained incrementally",
        }
    }

    /// Returns the error for creating the stream table, if the construct prevents not only deltas but any
    /// stream table.
    pub fn refusal(&self) -> Option<Error> {
        let (message, detail) = match self.cause {
            Cause::Volatile => (
                format!("a stream table cannot be kept equal to {}", self.construct),
                "What it gives is another each time the query runs.",
            ),
            Cause::Effect => (
                format!("the query of a stream table has {}", self.construct),
                "It does more than read, and the query runs whenever the table is refreshed.",
            ),
            Cause::SearchPath => (
                format!("a stream table cannot be kept equal to {}", self.construct),
                "Its value depends on the search path, and each refresh sets a search path of its own.",
            ),
            Cause::Construct | Cause::Surroundings | Cause::Source | Cause::Unread | Cause::Undecided => {
                return None;
            }
        };
        let e = Error::unsupported(message).detail(detail).hint(&self.help);
        Some(match self.span {
            Some(span) => e.at(span),
            None => e,
        })
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(s) = self.span {
            write!(f, "{}:{}: ", s.line, s.column)?;
        }
        write!(f, "{} {}\nHINT: {}", self.construct, self.predicate(), self.help)
    }
}
