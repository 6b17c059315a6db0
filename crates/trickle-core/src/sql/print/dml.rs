//! Prints statements that change data.

use super::Printer;
use crate::ident::{Ident, Qualified};
use crate::sql::ast::{
    ConflictAction, Delete, Insert, Lock, LockMode, Merge, MergeAction, OnConflict, Scalar, SelectItem,
    Truncate, Update,
};

impl Printer {
    fn target(&mut self, table: &Qualified, alias: Option<&Ident>) {
        self.qualified(table);
        if let Some(alias) = alias.filter(|a| **a != table.name) {
            self.word(" AS ");
            self.ident(alias);
        }
    }

    fn returning(&mut self, items: &[SelectItem]) {
        if !items.is_empty() {
            self.newline();
            self.word("RETURNING");
            self.list(items, Self::item);
        }
    }

    pub(super) fn insert(&mut self, i: &Insert) {
        self.ctes(&i.ctes);
        self.word("INSERT INTO ");
        if let Some(note) = &i.note {
            self.note(note);
        }
        self.target(&i.table, i.alias.as_ref());
        self.names(&i.columns);
        self.newline();
        self.query(&i.source);
        if let Some(c) = &i.on_conflict {
            self.on_conflict(c);
        }
        self.returning(&i.returning);
    }

    /// Writes a comment on a separate line. The comment is inside the statement, since PL/pgSQL reports a
    /// statement only from its first word.
    fn note(&mut self, note: &str) {
        let line: String = note.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        self.word(&format!("-- {line}"));
        self.newline();
    }

    fn on_conflict(&mut self, c: &OnConflict) {
        self.newline();
        self.word("ON CONFLICT");
        self.names(&c.columns);
        match &c.action {
            ConflictAction::Nothing => self.word(" DO NOTHING"),
            ConflictAction::Update { set, filter } => {
                self.word(" DO UPDATE SET");
                self.list(set, Self::assignment);
                self.conjuncts("WHERE", filter);
            }
        }
    }

    pub(super) fn update(&mut self, u: &Update) {
        self.ctes(&u.ctes);
        self.word("UPDATE ");
        self.target(&u.table, u.alias.as_ref());
        self.newline();
        self.word("SET");
        self.list(&u.set, Self::assignment);
        if !u.from.is_empty() {
            self.newline();
            self.word("FROM");
            self.list(&u.from, Self::source);
        }
        self.conjuncts("WHERE", &u.filter);
        self.returning(&u.returning);
    }

    pub(super) fn delete(&mut self, d: &Delete) {
        self.ctes(&d.ctes);
        self.word("DELETE FROM ");
        self.target(&d.table, d.alias.as_ref());
        if !d.using.is_empty() {
            self.newline();
            self.word("USING");
            self.list(&d.using, Self::source);
        }
        self.conjuncts("WHERE", &d.filter);
        self.returning(&d.returning);
    }

    pub(super) fn merge(&mut self, m: &Merge) {
        self.ctes(&m.ctes);
        self.word("MERGE INTO ");
        self.target(&m.table, m.alias.as_ref());
        self.newline();
        self.word("USING ");
        self.source(&m.using);
        self.word(" ON ");
        self.scalar(&m.on);
        for when in &m.whens {
            self.newline();
            self.word(if when.matched { "WHEN MATCHED" } else { "WHEN NOT MATCHED" });
            if let Some(condition) = &when.condition {
                self.word(" AND ");
                self.conjunct(condition, false);
            }
            self.word(" THEN ");
            match &when.action {
                MergeAction::Nothing => self.word("DO NOTHING"),
                MergeAction::Delete => self.word("DELETE"),
                MergeAction::Update(set) => {
                    self.word("UPDATE SET");
                    self.list(set, Self::assignment);
                }
                MergeAction::Insert(row) => self.merge_insert(row),
            }
        }
        self.returning(&m.returning);
    }

    fn merge_insert(&mut self, row: &[(Ident, Scalar)]) {
        self.word("INSERT (");
        self.row(row, |p, (name, _)| p.show(name));
        self.word(") VALUES (");
        self.row(row, |p, (_, value)| p.scalar(value));
        self.word(")");
    }

    pub(super) fn truncate(&mut self, t: &Truncate) {
        self.word("TRUNCATE ");
        self.row(&t.tables, |p, name| p.show(name));
    }

    pub(super) fn lock(&mut self, l: &Lock) {
        self.word("LOCK TABLE ");
        self.row(&l.tables, |p, name| {
            p.word(if l.only { "ONLY " } else { "" });
            p.show(name);
        });
        self.word(match l.mode {
            LockMode::AccessShare => " IN ACCESS SHARE MODE",
            LockMode::RowShare => " IN ROW SHARE MODE",
            LockMode::RowExclusive => " IN ROW EXCLUSIVE MODE",
            LockMode::ShareUpdateExclusive => " IN SHARE UPDATE EXCLUSIVE MODE",
            LockMode::Share => " IN SHARE MODE",
            LockMode::ShareRowExclusive => " IN SHARE ROW EXCLUSIVE MODE",
            LockMode::Exclusive => " IN EXCLUSIVE MODE",
            LockMode::AccessExclusive => " IN ACCESS EXCLUSIVE MODE",
        });
        self.word(if l.nowait { " NOWAIT" } else { "" });
    }
}
