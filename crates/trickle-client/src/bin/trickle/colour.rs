//! Whether a stream shows colours.

use std::io::IsTerminal;

/// Whether to use colours on a stream; `is_terminal` says whether the stream goes to a terminal. See
/// <https://no-color.org>.
pub(crate) fn wants_colour(is_terminal: bool) -> bool {
    let set = |name| std::env::var_os(name).is_some_and(|v| !v.is_empty());
    is_terminal && !set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|t| t != "dumb")
}

/// Whether standard error goes to a terminal that shows colours.
pub(crate) fn stderr_colour() -> bool {
    wants_colour(std::io::stderr().is_terminal())
}
