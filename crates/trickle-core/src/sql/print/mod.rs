//! The printer, which is the only code that writes SQL text. Equal trees give equal text, byte for byte.

mod ddl;
mod dml;
mod literal;
mod plpgsql;
mod query;
mod scalar;

use super::ast::{Param, Query, Scalar, Statement};
use crate::ident::{Ident, Qualified};
use std::fmt::Write;

/// The text of a statement, with the meaning of its parameters `$1`, `$2`, ….
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Printed {
    /// The text, which may have several lines and has no semicolon at its end.
    pub text: String,
    /// The meanings of the parameters, in the order of their positions.
    pub params: Vec<Param>,
}

/// Prints a statement as SQL text.
pub fn print(statement: &Statement) -> Printed {
    let mut p = Printer::default();
    p.statement(statement);
    p.finish()
}

/// Prints a query as SQL text.
pub fn print_query(query: &Query) -> Printed {
    let mut p = Printer::default();
    p.query(query);
    p.finish()
}

/// Returns a string constant in quotes, without a type. Commands such as SET accept such a constant. In an
/// expression, PostgreSQL gives the constant the type that the context needs.
pub fn quoted(text: &str) -> String {
    let mut p = Printer::default();
    p.quoted(text);
    p.out
}

impl std::fmt::Display for Scalar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut p = Printer::default();
        p.scalar(self);
        f.write_str(&p.out)
    }
}

impl std::fmt::Display for Query {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&print_query(self).text)
    }
}

impl std::fmt::Display for Statement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&print(self).text)
    }
}

/// The greatest number of characters in a list that stays on one line.
const LINE: usize = 100;
/// The greatest number of items in a list that is written without a memory allocation.
const INLINE: usize = 32;

#[derive(Default)]
struct Printer {
    out: String,
    indent: usize,
    params: Vec<Param>,
}

impl Printer {
    fn finish(self) -> Printed {
        Printed { text: self.out, params: self.params }
    }

    fn word(&mut self, text: &str) {
        self.out.push_str(text);
    }

    /// Writes a value whose `Display` form is SQL: a type, a number, a qualified name.
    fn show(&mut self, what: &impl std::fmt::Display) {
        self.put(format_args!("{what}"));
    }

    fn put(&mut self, what: std::fmt::Arguments<'_>) {
        // Writing to a string does not fail.
        let _ = self.out.write_fmt(what);
    }

    fn ident(&mut self, name: &Ident) {
        if name.is_plain() { self.word(name.as_str()) } else { self.show(name) }
    }

    fn qualified(&mut self, name: &Qualified) {
        if let Some(schema) = &name.schema {
            self.ident(schema);
            self.word(".");
        }
        self.ident(&name.name);
    }

    fn newline(&mut self) {
        self.out.push('\n');
        for _ in 0..self.indent {
            self.out.push_str("  ");
        }
    }

    /// Runs `f` at the next level of indentation.
    fn inside(&mut self, f: impl FnOnce(&mut Self)) {
        self.indent += 1;
        f(self);
        self.indent -= 1;
    }

    /// Returns the text that `f` writes. The text is not added to the output.
    fn capture(&mut self, f: impl FnOnce(&mut Self)) -> String {
        let before = std::mem::take(&mut self.out);
        f(self);
        std::mem::replace(&mut self.out, before)
    }

    /// Writes the list `a, b, c` on one line if it is short enough. Otherwise each item is on a separate,
    /// indented line.
    fn list<T>(&mut self, items: &[T], mut each: impl FnMut(&mut Self, &T)) {
        self.indent += 1;
        let start = self.out.len();
        // The list is first written on one line, since most lists are short enough. The end position of each
        // item is recorded, in case the list is too long.
        let mut ends = [0; INLINE];
        let mut more = Vec::new();
        for (i, item) in items.iter().enumerate() {
            self.word(if i == 0 { " " } else { ", " });
            each(self, item);
            match ends.get_mut(i) {
                Some(end) => *end = self.out.len(),
                None => more.push(self.out.len()),
            }
        }
        let line = &self.out[start..];
        let separators = items.len().saturating_sub(1) * 2 + 1;
        let short = line.chars().count() - separators.min(line.len()) + 2 * items.len() <= LINE
            && !line.contains('\n');
        if !short && items.len() > 1 {
            let line = self.out.split_off(start);
            let mut at = 0;
            for (i, end) in ends.iter().take(items.len()).chain(&more).enumerate() {
                self.word(if i == 0 { "" } else { "," });
                self.newline();
                self.word(&line[at + if i == 0 { 1 } else { 2 }..end - start]);
                at = end - start;
            }
        }
        self.indent -= 1;
    }

    /// Writes the list `a, b, c` on one line.
    fn row<T>(&mut self, items: &[T], mut each: impl FnMut(&mut Self, &T)) {
        for (i, item) in items.iter().enumerate() {
            if i > 0 {
                self.word(", ");
            }
            each(self, item);
        }
    }

    fn statement(&mut self, s: &Statement) {
        match s {
            Statement::Query(q) => self.query(q),
            Statement::Insert(i) => self.insert(i),
            Statement::Update(u) => self.update(u),
            Statement::Delete(d) => self.delete(d),
            Statement::Merge(m) => self.merge(m),
            Statement::Truncate(t) => self.truncate(t),
            Statement::Lock(l) => self.lock(l),
            Statement::CreateSchema(c) => {
                self.word("CREATE SCHEMA IF NOT EXISTS ");
                self.show(&c.name);
            }
            Statement::CreateTable(c) => self.create_table(c),
            Statement::CreateView(c) => self.create_view(c),
            Statement::CreateIndex(c) => self.create_index(c),
            Statement::CreateTriggerFunction(c) => self.create_function(c),
            Statement::CreateScriptFunction(c) => self.create_script_function(c),
            Statement::RevokeFunction(name) => {
                self.word("REVOKE ALL ON FUNCTION ");
                self.show(name);
                self.word("() FROM PUBLIC");
            }
            Statement::GrantFunction(name) => {
                self.word("GRANT EXECUTE ON FUNCTION ");
                self.show(name);
                self.word("() TO PUBLIC");
            }
            Statement::CreateTrigger(c) => self.create_trigger(c),
            Statement::AddPrimaryKey(a) => self.add_primary_key(a),
            Statement::EnableAlways(e) => self.enable_always(e),
            Statement::Drop(d) => self.drop_object(d),
        }
    }
}
