//! Trigger functions.

use super::{Scalar, Statement};
use crate::sql::ident::{Ident, Qualified};

/// `CREATE OR REPLACE FUNCTION name() RETURNS trigger` in PL/pgSQL that returns NULL.
#[derive(Clone, Debug, PartialEq)]
pub struct CreateTriggerFunction {
    /// Name.
    pub name: Qualified,
    /// Runs with the rights of its owner.
    pub security_definer: bool,
    /// What is in force while it runs: settings and their values, one each but for lists such as `search_path`.
    pub settings: Vec<(String, Vec<String>)>,
    /// Variables, by the names of their types.
    pub variables: Vec<(Ident, &'static str)>,
    /// What it runs.
    pub body: Vec<Instruction>,
}

/// `CREATE OR REPLACE FUNCTION name() RETURNS trigger` in a language of somebody else's, with the rights of its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateScriptFunction {
    /// Name.
    pub name: Qualified,
    /// The language.
    pub language: &'static str,
    /// What it does, in that language.
    pub script: String,
}

/// The search path of a function that nobody who calls it can lead astray: built-in names, and those of temporary objects
/// last.
pub fn pinned_path() -> (String, Vec<String>) {
    ("search_path".to_owned(), vec!["pg_catalog".to_owned(), "pg_temp".to_owned()])
}

/// An instruction of PL/pgSQL.
#[derive(Clone, Debug, PartialEq)]
pub enum Instruction {
    /// A statement that returns nothing. Its plan is made once in each session.
    Run(Statement),
    /// A statement that returns one row, into variables. Its plan is made once in each session.
    Fetch(Statement, Vec<Ident>),
    /// A statement whose plan is made each time, for what there is then; its rows are dropped.
    Anew(Statement),
    /// A statement over rows whose columns may have other names by now. Its plan is made each time.
    Renamed {
        /// The variable with the list of columns that is selected from each, under the alias `r`.
        list: Ident,
        /// The rows, as the statement reads them.
        rows: Vec<NamedRows>,
        /// The statement.
        statement: Statement,
    },
    /// `name := value`
    Assign(Ident, Scalar),
    /// `IF … THEN … ELSE … END IF`
    If {
        /// When.
        condition: Scalar,
        /// What then.
        then: Vec<Instruction>,
        /// What else.
        otherwise: Vec<Instruction>,
    },
    /// Instructions, and others in their place where one of them raises an error in the data (SQLSTATE classes 22 and 21).
    /// What they wrote is undone then. It costs a subtransaction.
    Attempt {
        /// What is tried.
        body: Vec<Instruction>,
        /// What is done where that raises.
        otherwise: Vec<Instruction>,
    },
    /// Ends the statement with an error.
    Raise {
        /// Its SQLSTATE.
        sqlstate: &'static str,
        /// What happened.
        message: String,
        /// What to do.
        hint: String,
    },
    /// `RETURN NULL`
    Return,
}

/// Rows as a statement reads them: `name (columns) AS (SELECT … FROM from)`.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedRows {
    /// Their name.
    pub name: Ident,
    /// Their columns.
    pub columns: Vec<Ident>,
    /// The relation that they are of, or the variable.
    pub from: Ident,
    /// Whether that is a variable, which holds one row.
    pub row: bool,
}
