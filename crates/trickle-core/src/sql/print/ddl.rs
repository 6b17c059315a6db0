//! Prints statements that create and drop objects.

use super::Printer;
use crate::sql::ast::{
    AddPrimaryKey, CreateIndex, CreateTable, CreateTrigger, CreateView, DropObject, EnableAlways, ObjectKind,
    Scalar, TriggerEvent, TriggerTiming,
};

impl Printer {
    pub(super) fn create_table(&mut self, c: &CreateTable) {
        self.word(if c.unlogged { "CREATE UNLOGGED TABLE " } else { "CREATE TABLE " });
        self.word(if c.if_not_exists { "IF NOT EXISTS " } else { "" });
        self.show(&c.name);
        self.word(" (");
        self.inside(|p| {
            for (i, column) in c.columns.iter().enumerate() {
                p.word(if i == 0 { "" } else { "," });
                p.newline();
                p.show(&column.name);
                p.word(" ");
                p.show(&column.ty);
                p.word(if column.not_null { " NOT NULL" } else { "" });
                if let Some(default) = &column.default {
                    p.word(" DEFAULT (");
                    p.scalar(default);
                    p.word(")");
                }
            }
            if !c.primary_key.is_empty() {
                p.word(if c.columns.is_empty() { "" } else { "," });
                p.newline();
                p.word("PRIMARY KEY");
                p.names(&c.primary_key);
            }
        });
        self.newline();
        self.word(")");
        if let Some(f) = c.fillfactor {
            self.word(&format!(" WITH (fillfactor = {f})"));
        }
    }

    pub(super) fn create_view(&mut self, c: &CreateView) {
        self.word("CREATE OR REPLACE VIEW ");
        self.show(&c.name);
        self.names(&c.columns);
        self.word(" AS");
        self.newline();
        self.query(&c.query);
    }

    pub(super) fn create_index(&mut self, c: &CreateIndex) {
        self.word(if c.unique { "CREATE UNIQUE INDEX " } else { "CREATE INDEX " });
        self.word(if c.if_not_exists { "IF NOT EXISTS " } else { "" });
        self.show(&c.name);
        self.word(" ON ");
        self.show(&c.table);
        self.word(" (");
        self.row(&c.keys, |p, key| match key {
            Scalar::Column { .. } => p.scalar(key),
            _ => {
                p.word("(");
                p.scalar(key);
                p.word(")");
            }
        });
        self.word(if c.nulls_not_distinct { ") NULLS NOT DISTINCT" } else { ")" });
        if let Some(filter) = &c.filter {
            self.word(" WHERE ");
            self.scalar(filter);
        }
    }

    pub(super) fn create_trigger(&mut self, c: &CreateTrigger) {
        self.word(if c.replace { "CREATE OR REPLACE TRIGGER " } else { "CREATE TRIGGER " });
        self.show(&c.name);
        self.word(match c.timing {
            TriggerTiming::Before => " BEFORE ",
            TriggerTiming::After => " AFTER ",
        });
        self.word(match c.event {
            TriggerEvent::Insert => "INSERT",
            TriggerEvent::Update => "UPDATE",
            TriggerEvent::Delete => "DELETE",
            TriggerEvent::Truncate => "TRUNCATE",
        });
        self.word(" ON ");
        self.show(&c.table);
        if c.old_table.is_some() || c.new_table.is_some() {
            self.newline();
            self.word("REFERENCING");
            for (word, name) in [(" OLD TABLE AS ", &c.old_table), (" NEW TABLE AS ", &c.new_table)] {
                if let Some(name) = name {
                    self.word(word);
                    self.show(name);
                }
            }
        }
        self.newline();
        self.word(if c.for_each_row { "FOR EACH ROW" } else { "FOR EACH STATEMENT" });
        self.word(" EXECUTE FUNCTION ");
        self.show(&c.function);
        self.word("()");
    }

    pub(super) fn add_primary_key(&mut self, a: &AddPrimaryKey) {
        self.word("ALTER TABLE ");
        self.show(&a.table);
        self.word(" ADD PRIMARY KEY (");
        for (i, column) in a.columns.iter().enumerate() {
            self.word(if i == 0 { "" } else { ", " });
            self.show(column);
        }
        self.word(")");
    }

    pub(super) fn enable_always(&mut self, e: &EnableAlways) {
        self.word("ALTER TABLE ");
        self.show(&e.table);
        self.word(" ENABLE ALWAYS TRIGGER ");
        self.show(&e.trigger);
    }

    pub(super) fn drop_object(&mut self, d: &DropObject) {
        self.word(match d.kind {
            ObjectKind::Table => "DROP TABLE IF EXISTS ",
            ObjectKind::View => "DROP VIEW IF EXISTS ",
            ObjectKind::Index => "DROP INDEX IF EXISTS ",
            ObjectKind::Function => "DROP FUNCTION IF EXISTS ",
            ObjectKind::Trigger(_) => "DROP TRIGGER IF EXISTS ",
        });
        self.show(&d.name);
        match &d.kind {
            ObjectKind::Function => self.word("()"),
            ObjectKind::Trigger(table) => {
                self.word(" ON ");
                self.show(table);
            }
            _ => {}
        }
        self.word(if d.cascade { " CASCADE" } else { "" });
    }
}
