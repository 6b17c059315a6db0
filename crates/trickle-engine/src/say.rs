//! What people write to have trickle do something: commands of the program, or calls of the extension's functions. Errors and
//! checks say what to do in these words.

use std::sync::OnceLock;

/// Who hears what is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Voice {
    /// Whoever types commands of `trickle`.
    Program,
    /// Whoever is in a session of a server with the extension.
    Sql,
}

/// A process is the program's or the server's, and stays so.
static VOICE: OnceLock<Voice> = OnceLock::new();

/// How this process speaks from now on; the first to say it decides. Without, as the program.
pub fn speak(voice: Voice) {
    let _ = VOICE.set(voice);
}

fn either(program: String, sql: impl FnOnce() -> String) -> String {
    match VOICE.get() {
        Some(Voice::Sql) => sql(),
        Some(Voice::Program) | None => program,
    }
}

/// One of these.
pub(crate) fn one(program: &'static str, sql: &'static str) -> &'static str {
    match VOICE.get() {
        Some(Voice::Sql) => sql,
        Some(Voice::Program) | None => program,
    }
}

/// A call of a function with a name, which is shown as `schema.name`, and more arguments.
fn call(function: &str, name: &str, more: &str) -> String {
    format!("SELECT pgtrickle.{function}('{}'{more})", name.replace('\'', "''"))
}

/// Refreshes a stream table.
pub(crate) fn refresh(name: &str) -> String {
    either(format!("trickle refresh {name}"), || call("refresh_stream_table", name, ""))
}

/// Refreshes several.
pub(crate) fn refresh_all(names: &[String]) -> String {
    let calls = || names.iter().map(|n| call("refresh_stream_table", n, "")).collect::<Vec<_>>().join("; ");
    either(format!("trickle refresh {}", names.join(" ")), calls)
}

/// Drops a stream table, or forgets one whose table is gone.
pub(crate) fn drop(name: &str) -> String {
    either(format!("trickle drop {name}"), || call("drop_stream_table", name, ""))
}

/// Makes one.
pub(crate) fn create(name: &str) -> String {
    either(format!("trickle create {name}"), || call("create_stream_table", name, ", $$…$$"))
}

/// Makes one of that name, or gives the one that is there its query.
pub(crate) fn replace(name: &str) -> String {
    let sql = || call("create_or_replace_stream_table", name, ", $$…$$");
    either(format!("trickle create {name} --or-replace"), sql)
}

/// Gives it a query.
pub(crate) fn alter_query(name: &str) -> String {
    let sql = || call("alter_stream_table", name, ", query => $$…$$");
    either(format!("trickle alter {name} --query …"), sql)
}

/// Puts it back on schedule.
pub(crate) fn resume(name: &str) -> String {
    either(format!("trickle alter {name} --resume"), || call("resume_stream_table", name, ""))
}

/// Tells how it stands.
pub(crate) fn status(name: &str) -> String {
    let sql = || format!("SELECT * FROM pgtrickle.pgt_status() WHERE name = '{}'", name.replace('\'', "''"));
    either(format!("trickle status {name}"), sql)
}

/// Has the changes of a table captured again; there is a command alone for it.
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
