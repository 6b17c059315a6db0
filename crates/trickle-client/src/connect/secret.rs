//! Texts that may hold a password: they cannot get into a message, since nothing prints them.

use std::fmt;

/// A text that is a secret or may hold one, such as a connection string. It has no `Display`, and its `Debug`
/// does not show it.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// The text, to be used and not to be told.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl<T: Into<String>> From<T> for Secret {
    fn from(text: T) -> Secret {
        Secret(text.into())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}
