//! Statement triggers that the extension runs in C: rows go from the transition tables into the segment without an executor.
//!
//! What they write is what [`super::trigger`] writes, as a bag: of an update, old and new rows that stand at the same place of
//! their transition tables are left out where they are the same byte by byte, which is −x +x whatever belongs to whatever.

use super::trigger::StatementTriggers;
use super::{Buffer, ChangeSource, Writer, function, function_name, limit};
use crate::sql::ast::{CreateScriptFunction, Statement, TriggerEvent};
use crate::sql::print;
use serde::{Deserialize, Serialize};

/// The procedural language of such functions: the extension's own. Each function is a [`CopyScript`].
pub const LANGUAGE: &str = "pgtrickle_copy";

/// What a trigger in C is told, as JSON in the text of its function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyScript {
    /// The schema and the name of the segment.
    pub segment: (String, String),
    /// The names of each captured column, in the source and in the segment.
    pub columns: Vec<(String, String)>,
    /// The bytes of the segment from which on nothing is copied, but the mark is left.
    pub limit: i64,
    /// The statement that does the same as the copying, for a segment or a source that is not as it was made.
    pub copy: String,
    /// The statement that leaves the mark of a full segment.
    pub mark: String,
}

/// The triggers of [`StatementTriggers`], with other functions.
#[derive(Debug)]
pub(super) struct CopyTriggers;

impl ChangeSource for CopyTriggers {
    fn writers(&self, buffer: &Buffer) -> Vec<Writer> {
        StatementTriggers.writers(buffer)
    }

    fn function(&self, writer: Writer, buffer: &Buffer) -> Statement {
        let Some(segment) = buffer.current().filter(|_| writer.event != TriggerEvent::Truncate) else {
            return function(writer, buffer);
        };
        let segment = buffer.segment_name(segment);
        let pair = |c: &usize| {
            let source = buffer.table().columns.get(*c)?;
            Some((source.name.to_string(), buffer.column(*c)?.0.as_str().to_owned()))
        };
        let text = |all: Vec<Statement>| all.iter().map(|s| print(s).text).collect::<Vec<_>>().join(";\n");
        let script = CopyScript {
            segment: (
                segment.schema.map(|s| s.as_str().to_owned()).unwrap_or_default(),
                segment.name.as_str().to_owned(),
            ),
            columns: buffer.columns().iter().filter_map(pair).collect(),
            limit: buffer.limit(),
            copy: text(writer.body),
            mark: text(limit::mark(buffer, None)),
        };
        Statement::CreateScriptFunction(CreateScriptFunction {
            name: function_name(buffer, writer.event),
            language: LANGUAGE,
            // Texts and numbers always have a JSON.
            script: serde_json::to_string_pretty(&script).unwrap_or_default(),
        })
    }
}
