//! Statement triggers that the extension runs in C. Such a trigger copies rows from the transition tables
//! into the segment without an executor.
//!
//! These triggers write the same bag as [`super::trigger`], except for some pairs of rows that cancel. The
//! trigger compares the old and the new row of an update at the same position of the two transition tables.
//! If the two rows are equal byte by byte, both are left out. The two rows are −x and +x, which cancel even
//! if neither row was updated into the other.

use super::trigger::StatementTriggers;
use super::{Buffer, ChangeSource, Writer, children, fit, function, function_name, limit};
use crate::sql::ast::{CreateScriptFunction, Statement, TriggerEvent};
use crate::sql::print;
use serde::{Deserialize, Serialize};

/// The procedural language for trigger functions in C. The extension provides this language. The body of such
/// a function is a [`CopyScript`].
pub(crate) const LANGUAGE: &str = "pgtrickle_copy";

/// The instructions for a trigger in C, stored as JSON in the body of its function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyScript {
    /// The schema and the name of the segment.
    pub segment: (String, String),
    /// For each captured column, its name in the source and its name in the segment.
    pub columns: Vec<(String, String)>,
    /// The oid of the source; 0 in a script of version 0.2.0 or earlier, which identifies columns only by
    /// name.
    #[serde(default)]
    pub source: u32,
    /// For each captured column, its number in the source and the oid of its type.
    #[serde(default)]
    pub attributes: Vec<(i16, u32)>,
    /// The size of the segment, in bytes, at which the trigger leaves the mark and copies no more rows.
    pub limit: i64,
    /// The statement that has the same effect as the copying, for a segment that was altered. The trigger
    /// runs this statement only while the source fits.
    pub copy: String,
    /// The statement that leaves the mark of a full segment.
    pub mark: String,
    /// The statement that leaves the mark of a change that cannot be captured; empty in a script of an
    /// earlier version.
    #[serde(default)]
    pub unfit: String,
    /// The statement that leaves a mark where the writer's session has a temporary child of the source. The
    /// trigger runs this statement only in sessions with temporary tables. Empty where the triggering
    /// statement reaches no child.
    #[serde(default)]
    pub temporary: String,
    /// The statement that leaves a mark where the source has partitions or children other than `known`. Empty
    /// where the triggering statement reaches no child, and in a script of an earlier version.
    #[serde(default)]
    pub unknown: String,
    /// The partitions and children of the source that have triggers, by oid, in ascending order.
    #[serde(default)]
    pub known: Vec<u32>,
    /// The tables that may have partitions or children that are not in `known`. These tables are the source,
    /// and either its partitions that have partitions themselves or all its children.
    #[serde(default)]
    pub parents: Vec<u32>,
    /// The statement that leaves a mark where the changed table is no longer a partition of the source. Empty
    /// where the source has no partitions, and in a script of an earlier version.
    #[serde(default)]
    pub former: String,
}

/// The triggers of [`StatementTriggers`], with other functions.
#[derive(Debug)]
pub(super) struct CopyTriggers;

impl ChangeSource for CopyTriggers {
    fn writers(&self, buffer: &Buffer) -> Vec<Writer> {
        StatementTriggers.writers(buffer)
    }

    fn function(&self, writer: Writer, buffer: &Buffer) -> Statement {
        // For a partitioned table, the trigger for UPDATE needs a check in addition to the copying. The
        // trigger for INSERT needs such a check if it reads generated columns. A trigger with such a check is
        // not run in C.
        let copied = match writer.event {
            TriggerEvent::Insert => !children::gets_unseen_values(buffer, &writer.reads),
            TriggerEvent::Delete => true,
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
            temporary: children::mark_of_temporary_child(buffer, writer.event)
                .map(|s| print(&s).text)
                .unwrap_or_default(),
            unknown: children::mark_of_unknown_children(buffer, writer.event)
                .map(|s| print(&s).text)
                .unwrap_or_default(),
            known: buffer.known().map(|k| k.all.clone()).unwrap_or_default(),
            parents: children::parents(buffer),
            former: children::mark_of_a_former_partition(buffer).map(|s| print(&s).text).unwrap_or_default(),
            unfit: if described { print(&fit::gone(buffer, &writer.reads)).text } else { String::new() },
            copy: text(writer.body),
            mark: text(limit::overflow_row(buffer, None)),
        };
        Statement::CreateScriptFunction(CreateScriptFunction {
            name: function_name(buffer, writer.event),
            language: LANGUAGE,
            // Texts and numbers always have a JSON form, so the default is never used.
            script: serde_json::to_string_pretty(&script).unwrap_or_default(),
        })
    }
}
