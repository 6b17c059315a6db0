//! Why a valid query is not kept up to date incrementally: a value with a place, never a silent fallback.

use crate::error::{Error, Span};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Whether waiting helps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ReasonKind {
    /// The engine does not know the construct yet.
    NotYet,
    /// The construct has no value that could be kept: it depends on more than the data.
    Never,
}

/// What else a construct says of the query, where that decides how its result can be kept at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Cause {
    /// There is no rule for it. The result is a function of the tables all the same.
    Construct,
    /// Its value is another one each time the query runs: no stored result equals it.
    Volatile,
    /// It does more than read: it writes, or locks.
    Effect,
    /// Its value depends on the clock, the session or what else a function reads: it may change while no table does.
    Surroundings,
    /// It is a relation whose changes cannot be captured.
    Source,
    /// The engine cannot read it: what the result depends on is not known.
    Unread,
    /// Nobody knows whether it exists: no server was asked.
    Undecided,
}

/// One construct that stands in the way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// Where it stands in the query; `None` inside a view that was expanded, and for the query as a whole.
    pub span: Option<Span>,
    /// "Not yet" or "never".
    pub kind: ReasonKind,
    /// What else it says of the query.
    pub cause: Cause,
    /// The construct, as a noun: `window functions`, `function random()`.
    pub construct: String,
    /// What the user can do.
    pub help: String,
}

impl Reason {
    /// The plan, or that of its delta, is too large: what [`Error::too_large`] says.
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

    /// The predicate of a sentence about the construct.
    pub fn predicate(&self) -> &'static str {
        match (self.cause, self.kind) {
            (Cause::Undecided, _) => "is not known offline: the server decides",
            (_, ReasonKind::NotYet) => "cannot be maintained incrementally yet",
            (_, ReasonKind::Never) => "can never be maintained incrementally",
        }
    }

    /// Where it stands against any stream table, not only against deltas: the error that creating one is.
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
            _ => return None,
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
