//! Trigger functions.

use super::{Scalar, Statement};
use crate::sql::ident::{Ident, Qualified};

/// `CREATE OR REPLACE FUNCTION name() RETURNS trigger` in PL/pgSQL that returns NULL.
#[derive(Clone, Debug, PartialEq)]
pub struct CreateTriggerFunction {
    /// Name.
    pub name: Qualified,
    /// Whether it runs with the rights of its owner.
    pub security_definer: bool,
    /// The settings in force while it runs, with their values: one value each, except for lists such as
    /// `search_path`.
    pub settings: Vec<(String, Vec<String>)>,
    /// The variables, with the names of their types.
    pub variables: Vec<(Ident, &'static str)>,
    /// The instructions.
    pub body: Vec<Instruction>,
}

/// `CREATE OR REPLACE FUNCTION name() RETURNS trigger` in a language that an extension provides, with the
/// rights of its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateScriptFunction {
    /// Name.
    pub name: Qualified,
    /// The language.
    pub language: &'static str,
    /// The function's text in that language.
    pub script: String,
}

/// Returns the search path of a function that no caller can redirect: built-in names first, names of
/// temporary objects last.
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
    /// A statement that is planned each time, for the current data. Its rows are dropped.
    Anew(Statement),
    /// A statement over rows whose columns may have been renamed, and which is therefore planned each time.
    Renamed {
        /// The variable that holds the list of columns to select from each of `rows`, under the alias `r`.
        list: Ident,
        /// The rows that the statement reads.
        rows: Vec<NamedRows>,
        /// The statement.
        statement: Statement,
    },
    /// `name := value`
    Assign(Ident, Scalar),
    /// `IF … THEN … ELSE … END IF`
    If {
        /// The condition.
        condition: Scalar,
        /// The instructions if the condition is true.
        then: Vec<Instruction>,
        /// The instructions otherwise.
        otherwise: Vec<Instruction>,
    },
    /// Instructions, and others to run if one of them raises an error in the data (SQLSTATE classes 22 and
    /// 21). The writes of the failed instructions are undone then. The block costs a subtransaction.
    Attempt {
        /// The instructions that are tried.
        body: Vec<Instruction>,
        /// The instructions that run if one of those raises.
        otherwise: Vec<Instruction>,
    },
    /// Ends the statement with an error.
    Raise {
        /// The SQLSTATE.
        sqlstate: &'static str,
        /// The message.
        message: String,
        /// The hint.
        hint: String,
    },
    /// `RETURN NULL`
    Return,
}

/// The rows that a statement reads: `name (columns) AS (SELECT … FROM from)`.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedRows {
    /// The name.
    pub name: Ident,
    /// The columns.
    pub columns: Vec<Ident>,
    /// The relation or the variable that the rows come from.
    pub from: Ident,
    /// Whether `from` is a variable, which holds one row.
    pub row: bool,
}
