//! Prints statements that create trigger functions.

use super::{Printer, quoted};
use crate::ident::Ident;
use crate::sql::ast::{CreateScriptFunction, CreateTriggerFunction, Instruction, NamedRows, Statement};

impl Printer {
    pub(super) fn create_function(&mut self, c: &CreateTriggerFunction) {
        let body = self.capture(|p| {
            // If a column has the same name as a variable of PL/pgSQL (found, tg_op …), the name denotes the
            // column.
            p.word("#variable_conflict use_column");
            if !c.variables.is_empty() {
                p.newline();
                p.word("DECLARE");
                p.inside(|p| {
                    for (name, ty) in &c.variables {
                        p.newline();
                        p.put(format_args!("{name} {ty};"));
                    }
                });
            }
            p.newline();
            p.word("BEGIN");
            p.inside(|p| {
                p.instructions(&c.body);
                p.newline();
                p.word("RETURN NULL;");
            });
            p.newline();
            p.word("END");
        });
        self.word("CREATE OR REPLACE FUNCTION ");
        self.show(&c.name);
        self.word("() RETURNS trigger LANGUAGE plpgsql");
        self.word(if c.security_definer { " SECURITY DEFINER" } else { "" });
        for (name, values) in &c.settings {
            self.setting(name, values);
        }
        self.word(" AS ");
        self.dollars("trickle", &format!("\n{body}\n"));
    }

    pub(super) fn create_script_function(&mut self, c: &CreateScriptFunction) {
        self.word("CREATE OR REPLACE FUNCTION ");
        self.show(&c.name);
        self.put(format_args!("() RETURNS trigger LANGUAGE {} SECURITY DEFINER AS ", c.language));
        self.dollars("trickle", &c.script);
    }

    /// Writes ` SET name = values`, a setting of the function.
    fn setting(&mut self, name: &str, values: &[String]) {
        let name: Vec<String> = name.split('.').map(|part| Ident::new(part).to_string()).collect();
        self.put(format_args!(" SET {} = ", name.join(".")));
        if values.is_empty() {
            self.word("''");
        }
        // Only the setting `search_path` has a list of values; they are identifiers.
        let schemas = name == ["search_path"];
        self.row(values, |p, v| match schemas {
            true => p.show(&Ident::new(v)),
            false => p.word(&quoted(v)),
        });
    }

    /// Writes a text in dollar quotes. The tag of the quotes is made so long that the text does not contain
    /// it.
    fn dollars(&mut self, tag: &str, text: &str) {
        let mut tag = format!("${tag}$");
        while text.contains(&tag) {
            tag.insert(1, 'x');
        }
        self.word(&tag);
        self.word(text);
        self.word(&tag);
    }

    fn instructions(&mut self, all: &[Instruction]) {
        for i in all {
            self.newline();
            self.instruction(i);
            self.word(";");
        }
    }

    fn block(&mut self, all: &[Instruction]) {
        self.inside(|p| p.instructions(all));
        self.newline();
    }

    /// Writes `EXECUTE 'WITH name (columns) AS (SELECT ' || list || ' FROM …) …' || statement USING …`.
    fn renamed(&mut self, list: &Ident, rows: &[NamedRows], statement: &Statement) {
        self.word("EXECUTE ");
        let mut values = Vec::new();
        for (i, r) in rows.iter().enumerate() {
            let before = self.capture(|p| {
                p.word(if i == 0 { "WITH " } else { ", " });
                p.ident(&r.name);
                p.word(" (");
                p.row(&r.columns, |p, c| p.ident(c));
                p.word(") AS (SELECT ");
            });
            let after = self.capture(|p| {
                p.word(" FROM ");
                if r.row {
                    values.push(&r.from);
                    p.put(format_args!("(SELECT (${}).*)", values.len()));
                } else {
                    p.ident(&r.from);
                }
                p.word(" r)");
            });
            self.put(format_args!("{} || ", quoted(&before)));
            self.ident(list);
            self.put(format_args!(" || {} || ", quoted(&after)));
        }
        let text = self.capture(|p| p.statement(statement));
        self.dollars("statement", &format!("\n{text}"));
        if !values.is_empty() {
            self.word(" USING ");
            self.row(&values, |p, name| p.ident(name));
        }
    }

    fn instruction(&mut self, i: &Instruction) {
        match i {
            Instruction::Run(statement) => self.statement(statement),
            Instruction::Fetch(statement, into) => {
                self.statement(statement);
                self.newline();
                self.word("INTO ");
                self.row(into, |p, name| p.ident(name));
            }
            Instruction::Anew(statement) => {
                let text = self.capture(|p| p.statement(statement));
                self.word("EXECUTE ");
                self.dollars("statement", &text);
            }
            Instruction::Renamed { list, rows, statement } => self.renamed(list, rows, statement),
            Instruction::Assign(name, value) => {
                self.ident(name);
                self.word(" := ");
                self.scalar(value);
            }
            Instruction::If { condition, then, otherwise } => {
                self.word("IF ");
                self.scalar(condition);
                self.word(" THEN");
                self.block(then);
                if !otherwise.is_empty() {
                    self.word("ELSE");
                    self.block(otherwise);
                }
                self.word("END IF");
            }
            Instruction::Attempt { body, otherwise } => {
                self.word("BEGIN");
                self.block(body);
                self.word("EXCEPTION WHEN data_exception OR cardinality_violation THEN");
                self.block(otherwise);
                self.word("END");
            }
            Instruction::Raise { sqlstate, message, hint } => {
                // The message is passed as an argument. A percent sign in the format would be a placeholder.
                self.put(format_args!(
                    "RAISE EXCEPTION '%', {} USING ERRCODE = '{sqlstate}', HINT = {}",
                    quoted(message),
                    quoted(hint)
                ));
            }
            Instruction::Return => self.word("RETURN NULL"),
        }
    }
}
