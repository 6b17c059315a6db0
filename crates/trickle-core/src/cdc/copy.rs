//! Statement triggers that the extension runs in C: rows go from the transition tables into the segment
//! without an executor.
//!
//! They write the same bag as [`super::trigger`], with one difference. An old and a new row of an update that
//! stand at the same place of their transition tables and are equal byte by byte are left out. The two rows
//! are −x +x, which cancels whether or not they belong together.

use super::trigger::StatementTriggers;
use super::{Buffer, ChangeSource, Writer, fit, function, function_name, limit};
use crate::sql::ast::{CreateScriptFunction, Statement, TriggerEvent};
use crate::sql::print;
use serde::{Deserialize, Serialize};

/// The procedural language of such functions: the extension's own. Each function is a [`CopyScript`].
pub const LANGUAGE: &str = "pgtrickle_copy";

/// The instructions for a trigger in C, as JSON in the text of its function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyScript {
    /// The schema and the name of the segment.
    pub segment: (String, String),
    /// The names of each captured column, in the source and in the segment.
    pub columns: Vec<(String, String)>,
    /// The source; 0 in a script of version 0.2.0 or earlier, which knows columns only by name.
    #[serde(default)]
    pub source: u32,
    /// The number and the oid of the type of each captured column of the source.
    #[serde(default)]
    pub attributes: Vec<(i16, u32)>,
    /// The size of the segment in bytes from which on nothing is copied and the mark is left instead.
    pub limit: i64,
    /// The statement with the same effect as the copying, for a segment that was altered; run only while the
    /// source fits.
    pub copy: String,
    /// The statement that leaves the mark of a full segment.
    pub mark: String,
    /// The statement that leaves the mark of a change that cannot be captured; empty in a script of an
    /// earlier version.
    #[serde(default)]
    pub unfit: String,
}

/// The triggers of [`StatementTriggers`], with other functions.
#[derive(Debug)]
pub(super) struct CopyTriggers;

impl ChangeSource for CopyTriggers {
    fn writers(&self, buffer: &Buffer) -> Vec<Writer> {
        StatementTriggers.writers(buffer)
    }

    fn function(&self, writer: Writer, buffer: &Buffer) -> Statement {
        // An UPDATE of a table with partitions must be checked as well as copied.
        let copied = match writer.event {
            TriggerEvent::Insert | TriggerEvent::Delete => true,
            TriggerEvent::Update => !(buffer.is_partitioned() && buffer.is_described()),
            TriggerEvent::Truncate => false,
        };
        let Some(segment) = buffer.current().filter(|_| copied) else { return function(writer, buffer) };
        let segment = buffer.segment_name(segment);
        let pair = |c: &usize| {
            let source = buffer.table().columns.get(*c)?;
            Some((source.name.to_string(), buffer.column(*c)?.0.as_str().to_owned()))
        };
        let described = buffer.is_described();
        let attribute = |c: &usize| buffer.table().columns.get(*c).map(|c| (c.number, c.type_id));
        let text = |all: Vec<Statement>| all.iter().map(|s| print(s).text).collect::<Vec<_>>().join(";\n");
        let script = CopyScript {
            segment: (
                segment.schema.map(|s| s.as_str().to_owned()).unwrap_or_default(),
                segment.name.as_str().to_owned(),
            ),
            columns: buffer.columns().iter().filter_map(pair).collect(),
            source: if described { buffer.table().id.0 } else { 0 },
            attributes: buffer.columns().iter().filter(|_| described).filter_map(attribute).collect(),
            limit: buffer.limit(),
            unfit: if described { print(&fit::gone(buffer, &writer.reads)).text } else { String::new() },
            copy: text(writer.body),
            mark: text(limit::mark(buffer, None)),
        };
        Statement::CreateScriptFunction(CreateScriptFunction {
            name: function_name(buffer, writer.event),
            language: LANGUAGE,
            // Texts and numbers always have a JSON form.
            script: serde_json::to_string_pretty(&script).unwrap_or_default(),
        })
    }
}
