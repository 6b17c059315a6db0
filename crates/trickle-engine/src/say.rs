//! The commands of the program, or the calls of the extension's functions, that errors and checks recommend.

/// The language in which errors and checks give advice. The host of a connection knows the voice
/// ([`Host::voice`](crate::db::Host::voice)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Voice {
    /// Commands of `trickle`.
    #[default]
    Program,
    /// SQL, in a session of a server with the extension.
    Sql,
}

impl Voice {
    fn either(self, program: String, sql: impl FnOnce() -> String) -> String {
        match self {
            Voice::Program => program,
            Voice::Sql => sql(),
        }
    }

    /// Returns `program` or `sql`, whichever text is in the language of this voice.
    pub(crate) fn one(self, program: &'static str, sql: &'static str) -> &'static str {
        match self {
            Voice::Program => program,
            Voice::Sql => sql,
        }
    }

    /// Returns the command that refreshes a stream table.
    pub(crate) fn refresh(self, name: &str) -> String {
        self.either(format!("trickle refresh {name}"), || call("refresh_stream_table", name, ""))
    }

    /// Returns the command that refreshes several stream tables.
    pub(crate) fn refresh_all(self, names: &[String]) -> String {
        let calls =
            || names.iter().map(|n| call("refresh_stream_table", n, "")).collect::<Vec<_>>().join("; ");
        self.either(format!("trickle refresh {}", names.join(" ")), calls)
    }

    /// Returns the command that drops a stream table, or deletes it from the catalog if its table was
    /// dropped.
    pub(crate) fn drop(self, name: &str) -> String {
        self.either(format!("trickle drop {name}"), || call("drop_stream_table", name, ""))
    }

    /// Returns the command that creates a stream table.
    pub(crate) fn create(self, name: &str) -> String {
        self.either(format!("trickle create {name}"), || call("create_stream_table", name, ", $$…$$"))
    }

    /// Returns the command that creates a stream table with that name, or gives the existing one the new
    /// query.
    pub(crate) fn replace(self, name: &str) -> String {
        let sql = || call("create_or_replace_stream_table", name, ", $$…$$");
        self.either(format!("trickle create {name} --or-replace"), sql)
    }

    /// Returns the command that gives a stream table a new query.
    pub(crate) fn alter_query(self, name: &str) -> String {
        let sql = || call("alter_stream_table", name, ", query => $$…$$");
        self.either(format!("trickle alter {name} --query …"), sql)
    }

    /// Returns the command that puts a stream table back on schedule.
    pub(crate) fn resume(self, name: &str) -> String {
        self.either(format!("trickle alter {name} --resume"), || call("resume_stream_table", name, ""))
    }

    /// Returns the command that shows the state of a stream table.
    pub(crate) fn status(self, name: &str) -> String {
        let sql =
            || format!("SELECT * FROM pgtrickle.pgt_status() WHERE name = '{}'", name.replace('\'', "''"));
        self.either(format!("trickle status {name}"), sql)
    }

    /// Returns the command that captures the changes of a table again. The extension has no function for
    /// this.
    pub(crate) fn enable(self, source: &str) -> String {
        self.either(format!("trickle enable {source}"), || format!("the program's trickle enable {source}"))
    }
}

/// Returns a call of a function. Its arguments are the name of a stream table, written as `schema.name`, and
/// the text `more`.
fn call(function: &str, name: &str, more: &str) -> String {
    format!("SELECT pgtrickle.{function}('{}'{more})", name.replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_argument_of_a_call() {
        let called = call("alter_stream_table", "public.\"o'clock\"", ", query => $$…$$");
        assert_eq!(called, "SELECT pgtrickle.alter_stream_table('public.\"o''clock\"', query => $$…$$)");
        assert_eq!(Voice::Program.refresh("public.t"), "trickle refresh public.t");
    }
}
