//! Texts that may hold a password. No code prints such a text, so the password cannot get into a message.

use std::fmt;

/// A text that is a secret or may hold one, such as a connection string. The type has no `Display`, and its
/// `Debug` hides the text.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Returns the text, which must not get into a message.
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
