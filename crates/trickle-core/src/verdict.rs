//! Why a valid query is not kept up to date incrementally: a value with a place, never a silent fallback.

use crate::error::Span;
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

/// One construct that stands in the way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// Where it stands in the query; `None` inside a view that was expanded, and for the query as a whole.
    pub span: Option<Span>,
    /// "Not yet" or "never".
    pub kind: ReasonKind,
    /// The construct, as a noun: `window functions`, `function random()`.
    pub construct: String,
    /// What the user can do.
    pub help: String,
}

impl Reason {
    /// The plan, or that of its delta, has more than `most` operators.
    pub(crate) fn too_large(most: usize) -> Reason {
        Reason {
            span: None,
            kind: ReasonKind::NotYet,
            construct: format!("a plan of more than {most} operators"),
            help: "Make a part of the query a stream table of its own, or refresh the table in full."
                .to_owned(),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(s) = self.span {
            write!(f, "{}:{}: ", s.line, s.column)?;
        }
        let how = match self.kind {
            ReasonKind::NotYet => "cannot be maintained incrementally yet",
            ReasonKind::Never => "can never be maintained incrementally",
        };
        write!(f, "{} {how}\nHINT: {}", self.construct, self.help)
    }
}
