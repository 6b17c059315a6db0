//! The words that the catalog `pgtrickle` and PostgreSQL's own catalogs store. Each list of words is an enum
//! with one spelling of each word. A word that is missing from its list is an error, since a catalog that a
//! later version wrote must not be misread.

use crate::error::Error;
use serde::{Deserialize, Serialize};

/// Declares an enum of words, or adds words to an enum that is declared elsewhere.
///
/// `words! { impl Kind: "kind of source" { Table = "TABLE" } }` adds `Kind::ALL`, `Kind::name` and
/// `Kind::parse`. The text in quotes names the list in the error for an unknown word.
macro_rules! words {
    ($(#[$attr:meta])* pub enum $name:ident: $what:literal { $($(#[$doc:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$attr])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum $name { $($(#[$doc])* #[serde(rename = $word)] $variant,)* }

        crate::vocabulary::words! { impl $name: $what { $($variant = $word,)* } }
    };
    (impl $name:ident: $what:literal { $($variant:ident = $word:literal,)* }) => {
        impl $name {
            /// All variants, in their order.
            pub const ALL: &[$name] = &[$($name::$variant,)*];

            /// Returns the word that is stored for the variant.
            pub fn name(self) -> &'static str {
                match self { $($name::$variant => $word,)* }
            }

            /// Reads a stored word.
            ///
            /// # Errors
            /// Fails with 0A000 if the word is not in the list. Another version of trickle then wrote the
            /// word.
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
    /// The manner in which a stream table is kept up to date: `pgt_stream_tables.refresh_mode`.
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
    /// The manner in which the user wants a stream table to be kept up to date:
    /// `pgt_stream_tables.requested_mode`.
    #[derive(Default)]
    pub enum RefreshMode: "requested refresh mode" {
        /// By deltas if the query allows them, otherwise by full refreshes. In the latter case, the reason is
        /// reported.
        #[default]
        Auto = "AUTO",
        /// By deltas. The creation fails if the query does not allow deltas.
        Differential = "DIFFERENTIAL",
        /// By full refreshes.
        Full = "FULL",
        /// Within the transactions that write its sources.
        Immediate = "IMMEDIATE",
    }
}

words! {
    /// The state of a stream table, which decides whether it is refreshed: `pgt_stream_tables.status`.
    pub enum Activity: "status of a stream table" {
        /// The first fill of the stream table has not ended.
        Initializing = "INITIALIZING",
        /// The stream table is refreshed.
        Active = "ACTIVE",
        /// The stream table is not refreshed until somebody resumes it.
        Suspended = "SUSPENDED",
        /// The last refresh of the stream table failed. The next refresh comes later.
        Error = "ERROR",
    }
}

words! {
    /// The origin of a refresh: `pgt_refresh_history.initiated_by`.
    #[derive(Default)]
    pub enum Initiator: "initiator of a refresh" {
        /// The refresher, on schedule.
        Scheduler = "SCHEDULER",
        /// A person or a program that requested the refresh.
        #[default]
        Manual = "MANUAL",
        /// The creation of the stream table.
        Initial = "INITIAL",
    }
}

words! {
    /// The action of a refresh on a stream table: `pgt_refresh_history.action`.
    pub enum Action: "action of a refresh" {
        /// No action was taken, since the window of the stream table was empty.
        NoData = "NO_DATA",
        /// The delta was applied.
        Differential = "DIFFERENTIAL",
        /// The stream table was recomputed.
        Full = "FULL",
        /// The stream table was recomputed since its frontier was missing or invalidated, or came from
        /// another database.
        Reinitialize = "REINITIALIZE",
        /// No action was taken, since the refresh did not take place.
        Skip = "SKIP",
    }
}

words! {
    /// The end of a refresh: `pgt_refresh_history.status`.
    pub enum Ending: "status of a refresh" {
        /// The refresh has not ended.
        Running = "RUNNING",
        /// The refresh is committed.
        Completed = "COMPLETED",
        /// The refresh failed and changed nothing. The reason is stored in the same row.
        Failed = "FAILED",
        /// The refresh gave way to another session or to another refresh, and changed nothing.
        Skipped = "SKIPPED",
    }
}

words! {
    /// Whether the changes of a source are captured: `pgt_buffers.capture`.
    pub enum Capture: "state of capture" {
        /// The changes are captured.
        On = "ON",
        /// The changes are not captured until a reader of the source is planned again.
        Off = "OFF",
        /// The changes are not captured: the user switched capture off, and only the user switches it on
        /// again.
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
        each!(Mode, RefreshMode, Activity, Action, Ending, Initiator, Capture, crate::table::TableKind);
        for word in ["", "full", "FULL ", "LATER"] {
            let error = Mode::parse(word).unwrap_err();
            assert!(error.message().contains(&format!("\"{word}\"")), "{error}");
        }
    }
}
