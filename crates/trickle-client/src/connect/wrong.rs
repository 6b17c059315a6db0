//! Errors of connection strings. A mistyped connection string may have a password anywhere in it. A piece
//! that looks like the name of an option may be half of a password. So these errors hold no text of the
//! string: they name a part of the string, or give the number of a place.

use super::ConnectError;
use std::fmt;

/// A part of a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    User,
    Password,
    Host,
    Port,
    Database,
    /// The option with this number after the `?`, counted from 1.
    Option(usize),
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Part::User => f.write_str("the user's name"),
            Part::Password => f.write_str("the password"),
            Part::Host => f.write_str("a host"),
            Part::Port => f.write_str("a port"),
            Part::Database => f.write_str("the database's name"),
            Part::Option(n) => write!(f, "option {n} after the ?"),
        }
    }
}

/// The place of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OptionPlace {
    /// The number of the option in a connection string, counted from 1.
    Number(usize),
    /// The line of the option in a service, counted from the service's name.
    Line(usize),
}

impl fmt::Display for OptionPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OptionPlace::Number(n) => write!(f, "connection option {n}"),
            OptionPlace::Line(n) => write!(f, "the option in line {n} of the service"),
        }
    }
}

/// An error in a connection string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wrong {
    /// A `%` that two hexadecimal digits do not follow: in this part, at this character, counted from 1.
    Escape(Part, usize),
    /// A part whose decoded bytes are not UTF-8.
    Bytes(Part),
    /// A `@` after the first `/` of a URL.
    LateAt,
    /// A `:` in the user's name of a URL, which is to be written `%3A`.
    ColonInUser,
    /// A scheme other than `postgres` and `postgresql`.
    Scheme,
    /// A text that is neither a URL, nor pairs of a key and a value, nor the plain name of a database.
    NoName,
    /// An unknown option, with the keyword that the user probably meant.
    Unknown(OptionPlace, Option<&'static str>),
    /// An option that asks for a protection that this program does not have.
    Refused(&'static str),
    /// An option without `=`.
    NoValue(OptionPlace),
    /// An option whose value has no closing quote.
    NoQuote(OptionPlace),
    /// An option with an invalid value.
    Value(&'static str),
}

/// The form of a URL.
const URL: &str = "A URL looks like postgres://user:password@host:5432/database.";

impl Wrong {
    fn message(self) -> String {
        match self {
            Wrong::Escape(part, at) => format!(
                "{part} in the connection URL is not percent-encoded: character {at} of it is a % without two hexadecimal \
                 digits after it"
            ),
            Wrong::Bytes(part) => {
                format!("{part} in the connection URL is not percent-encoded: it is no text in UTF-8")
            }
            Wrong::LateAt => {
                "the connection URL has a @ after its first /, where a database's name stands".to_owned()
            }
            Wrong::ColonInUser => "the user's name in the connection URL has a : in it".to_owned(),
            Wrong::Scheme => "the connection URL does not begin with postgres://".to_owned(),
            Wrong::NoName => {
                "the connection string is no URL, no key=value pairs, and no plain name of a database"
                    .to_owned()
            }
            Wrong::Unknown(at, _) => format!("{at} does not exist"),
            Wrong::Refused(name) => format!("connection option \"{name}\" is not supported"),
            Wrong::NoValue(at) => format!("{at} has no value"),
            Wrong::NoQuote(at) => format!("the value of {at} has no closing quote"),
            Wrong::Value(name) => format!("invalid value for connection option \"{name}\""),
        }
    }

    fn hint(self) -> String {
        const ENCODED: &str = "In a URL, write % as %25, @ as %40, : as %3A, / as %2F and ? as %3F.";
        match self {
            Wrong::Escape(..) | Wrong::Bytes(_) => ENCODED.to_owned(),
            Wrong::LateAt => format!("Is it part of a password that has a / in it? {ENCODED}"),
            Wrong::ColonInUser => {
                "Between user and password the : is written as it is; a user whose name has one is named with key=value pairs."
                    .to_owned()
            }
            Wrong::Scheme => URL.to_owned(),
            Wrong::NoName => format!("{URL} A database whose name has a :, @ or / in it is named with dbname='…'."),
            Wrong::Unknown(_, near) => {
                let near = near.map(|n| format!("Did you mean {n}? ")).unwrap_or_default();
                format!("{near}Options are those of libpq: host, port, user, dbname, password, sslmode, …")
            }
            Wrong::Refused(_) => "Leave it out, or have the server's pg_hba.conf demand the same.".to_owned(),
            Wrong::NoValue(_) | Wrong::NoQuote(_) => {
                "Write key=value pairs, a value with spaces as 'value', or a postgres:// URL.".to_owned()
            }
            Wrong::Value(_) => "Check the connection string and the PG… variables (env | grep ^PG).".to_owned(),
        }
    }
}

impl From<Wrong> for ConnectError {
    fn from(wrong: Wrong) -> ConnectError {
        ConnectError::setting(wrong.message()).hint(wrong.hint())
    }
}
