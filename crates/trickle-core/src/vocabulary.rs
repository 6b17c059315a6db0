//! The words that the catalog `pgtrickle` and PostgreSQL's own catalogs store: each list of them is an enum
//! with one spelling of each word. A word that is not in its list is an error and never taken for another
//! one: a catalog that a later version wrote must not be misread.

use crate::error::Error;
use serde::{Deserialize, Serialize};

/// Declares an enum of words, or gives one that stands elsewhere its words.
///
/// `words! { impl Kind: "kind of source" { Table = "TABLE" } }` adds `Kind::ALL`, `Kind::name` and
/// `Kind::parse`. The text in quotes tells in an error which list the unknown word is not in.
macro_rules! words {
    ($(#[$attr:meta])* pub enum $name:ident: $what:literal { $($(#[$doc:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$attr])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum $name { $($(#[$doc])* #[serde(rename = $word)] $variant,)* }

        crate::vocabulary::words! { impl $name: $what { $($variant = $word,)* } }
    };
    (impl $name:ident: $what:literal { $($variant:ident = $word:literal,)* }) => {
        impl $name {
            /// All of them.
            pub const ALL: &[$name] = &[$($name::$variant,)*];

            /// The word that is stored.
            pub fn name(self) -> &'static str {
                match self { $($name::$variant => $word,)* }
            }

            /// Reads a stored word.
            ///
            /// # Errors
            /// The word is not in the list: another version of trickle wrote it.
            pub fn parse(word: &str) -> crate::error::Result<Self> {
                match word {
                    $($word => Ok($name::$variant),)*
                    unknown => Err(crate::vocabulary::unknown($what, unknown)),
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }
    };
}
pub(crate) use words;

/// Makes the error of a word that is in no list.
pub fn unknown(what: &str, word: &str) -> Error {
    Error::unsupported(format!(
        "the database has the {what} \"{word}\", which this version of trickle does not know"
    ))
    .hint("Use a later version of trickle.")
}

words! {
    /// How a stream table is kept: `pgt_stream_tables.refresh_mode`.
    pub enum Mode: "refresh mode" {
        /// By deltas.
        Differential = "DIFFERENTIAL",
        /// By full refreshes.
        Full = "FULL",
        /// Within the transactions that write its sources.
        Immediate = "IMMEDIATE",
    }
}

words! {
    /// How a stream table is wanted to be kept: `pgt_stream_tables.requested_mode`.
    #[derive(Default)]
    pub enum RefreshMode: "requested refresh mode" {
        /// By deltas where that is possible, else by full refreshes, with the reason.
        #[default]
        Auto = "AUTO",
        /// By deltas; an error where that is impossible.
        Differential = "DIFFERENTIAL",
        /// By full refreshes.
        Full = "FULL",
        /// Within the transactions that write its sources.
        Immediate = "IMMEDIATE",
    }
}

words! {
    /// Whether a stream table is refreshed: `pgt_stream_tables.status`.
    pub enum Activity: "status of a stream table" {
        /// Its first fill is not done.
        Initializing = "INITIALIZING",
        /// It is refreshed.
        Active = "ACTIVE",
        /// It is not refreshed until somebody resumes it.
        Suspended = "SUSPENDED",
        /// Its last refresh failed; the next is tried later.
        Error = "ERROR",
    }
}

words! {
    /// Who began a refresh: `pgt_refresh_history.initiated_by`.
    #[derive(Default)]
    pub enum Initiator: "initiator of a refresh" {
        /// The refresher, on schedule.
        Scheduler = "SCHEDULER",
        /// A person or a program that asked for it.
        #[default]
        Manual = "MANUAL",
        /// The creation of the stream table.
        Initial = "INITIAL",
    }
}

words! {
    /// What a refresh did to a stream table: `pgt_refresh_history.action`.
    pub enum Action: "action of a refresh" {
        /// Nothing: its window was empty.
        NoData = "NO_DATA",
        /// A delta was applied.
        Differential = "DIFFERENTIAL",
        /// It was recomputed.
        Full = "FULL",
        /// It was recomputed because its frontier was missing, foreign, or given up.
        Reinitialize = "REINITIALIZE",
        /// Nothing: the refresh did not take place.
        Skip = "SKIP",
    }
}

words! {
    /// How a refresh ended: `pgt_refresh_history.status`.
    pub enum Ending: "status of a refresh" {
        /// It has not ended.
        Running = "RUNNING",
        /// It is committed.
        Completed = "COMPLETED",
        /// It changed nothing; the reason is stored beside.
        Failed = "FAILED",
        /// It gave way to another session or to another refresh, and changed nothing.
        Skipped = "SKIPPED",
    }
}

words! {
    /// Whether the changes of a source are captured: `pgt_buffers.capture`.
    pub enum Capture: "state of capture" {
        /// They are.
        On = "ON",
        /// They are not, until a reader of the source is planned again.
        Off = "OFF",
        /// They are not: the user switched capture off, and alone switches it on again.
        Held = "HELD",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_word_is_read_as_it_is_written_and_no_other() {
        macro_rules! each {
            ($($list:ty),*) => { $(
                for word in <$list>::ALL {
                    assert_eq!(<$list>::parse(word.name()).unwrap(), *word);
                    assert_eq!(serde_json::to_value(word).unwrap(), word.name());
                    assert_eq!(serde_json::from_value::<$list>(word.name().into()).unwrap(), *word);
                }
            )* };
        }
        each!(Mode, RefreshMode, Activity, Action, Ending, Initiator, Capture, crate::catalog::TableKind);
        for word in ["", "full", "FULL ", "LATER"] {
            let error = Mode::parse(word).unwrap_err();
            assert!(error.message().contains(&format!("\"{word}\"")), "{error}");
        }
    }
}
