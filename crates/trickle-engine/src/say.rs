//! The commands of the program, or the calls of the extension's functions, that errors and checks recommend.

use std::sync::OnceLock;

/// The language in which errors and checks give advice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Voice {
    /// Commands of `trickle`.
    Program,
    /// SQL, in a session of a server with the extension.
    Sql,
}

/// The voice of this process, which never changes, since a process is either the program or a process of the
/// server.
static VOICE: OnceLock<Voice> = OnceLock::new();

/// Sets the voice of this process. The first call decides. Without a call the voice is [`Voice::Program`].
pub fn speak(voice: Voice) {
    let _ = VOICE.set(voice);
}

fn either(program: String, sql: impl FnOnce() -> String) -> String {
    match VOICE.get() {
        Some(Voice::Sql) => sql(),
        Some(Voice::Program) | None => program,
    }
}

/// Returns the one of two texts that fits the voice of this process.
pub(crate) fn one(program: &'static str, sql: &'static str) -> &'static str {
    match VOICE.get() {
        Some(Voice::Sql) => sql,
        Some(Voice::Program) | None => program,
    }
}

/// Returns a call of a function. Its arguments are the name of a stream table, written as `schema.name`, and
/// the text `more`.
fn call(function: &str, name: &str, more: &str) -> String {
    format!("SELECT pgtrickle.{function}('{}'{more})", name.replace('\'', "''"))
}

/// Returns the command that refreshes a stream table.
pub(crate) fn refresh(name: &str) -> String {
    either(format!("trickle refresh {name}"), || call("refresh_stream_table", name, ""))
}

/// Returns the command that refreshes several stream tables.
pub(crate) fn refresh_all(names: &[String]) -> String {
    let calls = || names.iter().map(|n| call("refresh_stream_table", n, "")).collect::<Vec<_>>().join("; ");
    either(format!("trickle refresh {}", names.join(" ")), calls)
}

/// Returns the command that drops a stream table, or deletes it from the catalog if its table was dropped.
pub(crate) fn drop(name: &str) -> String {
    either(format!("trickle drop {name}"), || call("drop_stream_table", name, ""))
}

/// Returns the command that creates a stream table.
pub(crate) fn create(name: &str) -> String {
    either(format!("trickle create {name}"), || call("create_stream_table", name, ", $$…$$"))
}

/// Returns the command that creates a stream table with that name, or gives the existing one the new query.
pub(crate) fn replace(name: &str) -> String {
    let sql = || call("create_or_replace_stream_table", name, ", $$…$$");
    either(format!("trickle create {name} --or-replace"), sql)
}

/// Returns the command that gives a stream table a new query.
pub(crate) fn alter_query(name: &str) -> String {
    let sql = || call("alter_stream_table", name, ", query => $$…$$");
    either(format!("trickle alter {name} --query …"), sql)
}

/// Returns the command that puts a stream table back on schedule.
pub(crate) fn resume(name: &str) -> String {
    either(format!("trickle alter {name} --resume"), || call("resume_stream_table", name, ""))
}

/// Returns the command that shows the state of a stream table.
pub(crate) fn status(name: &str) -> String {
    let sql = || format!("SELECT * FROM pgtrickle.pgt_status() WHERE name = '{}'", name.replace('\'', "''"));
    either(format!("trickle status {name}"), sql)
}

/// Returns the command that captures the changes of a table again. The extension has no function for this.
pub(crate) fn enable(source: &str) -> String {
    either(format!("trickle enable {source}"), || format!("the program's trickle enable {source}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_argument_of_a_call() {
        let called = call("alter_stream_table", "public.\"o'clock\"", ", query => $$…$$");
        assert_eq!(called, "SELECT pgtrickle.alter_stream_table('public.\"o''clock\"', query => $$…$$)");
        assert_eq!(refresh("public.t"), "trickle refresh public.t", "without the extension");
    }
}
