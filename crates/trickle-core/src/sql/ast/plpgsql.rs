//! Syntax trees of trigger functions.

use super::{Scalar, Statement};
use crate::ident::{Ident, Qualified};

/// `CREATE OR REPLACE FUNCTION name() RETURNS trigger`, for a function in PL/pgSQL that returns NULL.
#[derive(Clone, Debug, PartialEq)]
pub struct CreateTriggerFunction {
    /// The name of the function.
    pub(crate) name: Qualified,
    /// Whether the function runs with its owner's rights (SECURITY DEFINER).
    pub(crate) security_definer: bool,
    /// The settings that are in force while the function runs, with their values. Only a list such as
    /// `search_path` has several values.
    pub(crate) settings: Vec<(String, Vec<String>)>,
    /// The variables of the function, with the names of their types.
    pub(crate) variables: Vec<(Ident, &'static str)>,
    /// The instructions of the function.
    pub(crate) body: Vec<Instruction>,
}

/// `CREATE OR REPLACE FUNCTION name() RETURNS trigger`, for a function in a language of an extension. The
/// function runs with the rights of its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateScriptFunction {
    /// The name of the function.
    pub(crate) name: Qualified,
    /// The language of the function.
    pub(crate) language: &'static str,
    /// The text of the function in its language.
    pub(crate) script: String,
}

/// Returns a search path that no caller of a function can redirect: built-in names come first, and names of
/// temporary objects last.
pub(crate) fn pinned_path() -> (String, Vec<String>) {
    ("search_path".to_owned(), vec!["pg_catalog".to_owned(), "pg_temp".to_owned()])
}

/// An instruction of PL/pgSQL.
#[derive(Clone, Debug, PartialEq)]
pub enum Instruction {
    /// A statement that returns no rows. The plan of the statement is made once in each session.
    Run(Statement),
    /// A statement that returns one row, which is stored in variables. The plan of the statement is made once
    /// in each session.
    Fetch(Statement, Vec<Ident>),
    /// A statement that is planned for each run, so that the plan fits the current data. The rows that the
    /// statement returns are dropped.
    Anew(Statement),
    /// A statement that reads rows whose columns may have been renamed. For this reason the statement is
    /// planned for each run.
    Renamed {
        /// The variable that holds a select list as text. The list selects columns of each of `rows`, which
        /// have the alias `r` in the list.
        list: Ident,
        /// The rows that the statement reads.
        rows: Vec<NamedRows>,
        /// The statement that reads `rows`.
        statement: Statement,
    },
    /// `name := value`
    Assign(Ident, Scalar),
    /// `IF … THEN … ELSE … END IF`
    If {
        /// The condition of the IF.
        condition: Scalar,
        /// The instructions that run if the condition is true.
        then: Vec<Instruction>,
        /// The instructions that run if the condition is false or NULL.
        otherwise: Vec<Instruction>,
    },
    /// Instructions that are tried, and other instructions that run if a tried instruction raises a data
    /// error (SQLSTATE classes 22 and 21). After such an error, the writes of the tried instructions are
    /// undone. The block costs a subtransaction.
    Attempt {
        /// The instructions that are tried.
        body: Vec<Instruction>,
        /// The instructions that run if one of the tried instructions raises a data error.
        otherwise: Vec<Instruction>,
    },
    /// An instruction that ends the trigger's statement with an error.
    Raise {
        /// The SQLSTATE of the error.
        sqlstate: &'static str,
        /// The message of the error.
        message: String,
        /// The hint of the error.
        hint: String,
    },
    /// `RETURN NULL`
    Return,
}

/// The rows that a statement reads: `name (columns) AS (SELECT … FROM from)`.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedRows {
    /// The name under which the statement reads the rows.
    pub(crate) name: Ident,
    /// The names of the columns.
    pub(crate) columns: Vec<Ident>,
    /// The relation or variable from which the rows are read.
    pub(crate) from: Ident,
    /// Whether `from` is a variable with one row, and not a relation.
    pub(crate) row: bool,
}
