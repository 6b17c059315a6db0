//! The form of the files that contain attempts.
//!
//! ```text
//! owner of a source: an implicit cast from a type of the owner's to the column's
//!     before CREATE TYPE mallory.pair AS (x int)
//!     do ALTER TABLE shop.t ALTER v TYPE mallory.pair USING row(v)
//! ```
//!
//! | step | meaning |
//! |---|---|
//! | `before`, `do` | a step of mallory that must succeed, before or after the stream table is made |
//! | `no` | a step of mallory that must be refused |
//! | `try` | a step of mallory that may be refused or not |
//! | `hold` | a step of mallory in a transaction that stays open to the end of the attempt |
//! | `admin`, `alice`, `wilma` | a step of the superuser, of alice or of a writer, that must succeed |
//! | `first` | a step of the superuser, before the stream table is made |
//! | `write`, `self` | writes of wilma and of mallory before each operation; `-` for none |
//! | `query` | the query of the attacked stream table |
//! | `only`, `kept` | the attempt is made only with this driver, or only in this mode |
//! | `early` | a step of mallory, before there is a catalog, with CREATE on the database |
//! | `on own` | operations are done on mallory's stream table `own`, over `mallory.m` |
//! | `expect` | a query for the expected rows, if `query` gives the superuser other rows than the owner |
//! | `named` | the query names objects of mallory; operations that would agree to these are left out |
//! | `breaks` | mallory may break the stream table as its owner, or block operations as a writer |
//!
//! `{source}` and `{mine}` stand for the OIDs of `shop.t` and `mallory.m`, and `{database}` for the name of
//! the database. `{id}` in a write stands for a number that differs each time.
//!
//! A line that is indented further continues the previous line. `mallory` stands for a role whose name the
//! test chooses.

use super::Driver;
use super::operations::Keeping;
use std::path::Path;

/// A kind of attacker. The kind decides which rights mallory has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Actor {
    /// An attacker who owns `shop.t`, the source of the stream table.
    Owner,
    /// An attacker who owns a stream table. With the extension, the attacker also created the stream table.
    Grantee,
    /// An attacker who owned `shop.t` until alice became its owner.
    Former,
    /// An attacker who may read the stream table.
    Reader,
    /// An attacker who may insert into `shop.t`.
    Writer,
    /// An attacker who may create objects in schema public, which is in every role's search_path.
    Creator,
    /// An attacker with only the rights CONNECT and TEMPORARY.
    Guest,
    /// An attacker with the rights of PUBLIC.
    Public,
}

impl Actor {
    pub(super) const ALL: [Actor; 8] = [
        Actor::Owner,
        Actor::Grantee,
        Actor::Former,
        Actor::Reader,
        Actor::Writer,
        Actor::Creator,
        Actor::Guest,
        Actor::Public,
    ];

    fn read(name: &str) -> Option<Actor> {
        let names = [
            "owner of a source",
            "owner of another stream table",
            "former owner of a source",
            "reader",
            "writer",
            "creator",
            "guest",
            "public",
        ];
        Some(Actor::ALL[names.iter().position(|n| *n == name)?])
    }

    /// Whether the actor may break readers of the source by rights of the source's owner.
    pub(super) fn owns_the_source(self) -> bool {
        matches!(self, Actor::Owner | Actor::Former)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    Mallory,
    Alice,
    Wilma,
    Admin,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    Done,
    Refused,
    Either,
    /// The step succeeds, and its transaction stays open.
    Held,
}

#[derive(Debug)]
pub(super) struct Step {
    pub(super) by: By,
    pub(super) wanted: Wanted,
    pub(super) sql: String,
}

#[derive(Debug)]
pub(super) struct Attempt {
    pub(super) actor: Actor,
    pub(super) title: String,
    pub(super) query: Option<String>,
    pub(super) before: Vec<Step>,
    pub(super) then: Vec<Step>,
    pub(super) write: Option<String>,
    pub(super) own_write: Option<String>,
    pub(super) only: Option<Driver>,
    pub(super) kept: Option<Keeping>,
    pub(super) early: Vec<Step>,
    /// Whether operations are done on mallory's stream table instead of the attacked one.
    pub(super) own: bool,
    /// A query for the expected rows, if the stream table's query gives the comparing superuser other rows
    /// than its owner.
    pub(super) expect: Option<String>,
    /// Whether the query names objects of mallory. The superuser agrees to these objects by each operation
    /// that contains the query again.
    pub(super) named: bool,
    pub(super) breaks: bool,
}

impl Attempt {
    /// Whether mallory may break the attacked stream table. Mallory may do so as the owner of the stream
    /// table or of its source, or because the attempt has the step `breaks`.
    pub(super) fn may_break(&self) -> bool {
        self.actor.owns_the_source() || self.breaks || self.own
    }
}

/// Returns the attempts in the file of this name.
pub(super) fn read(way: &str) -> Vec<Attempt> {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../tests/pg/redteam/attempts/{way}.attempts"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut attempts: Vec<Attempt> = Vec::new();
    let mut lines: Vec<(usize, String)> = Vec::new();
    for line in text.lines().filter(|l| !l.trim().is_empty() && !l.trim_start().starts_with("-- ")) {
        let depth = line.len() - line.trim_start().len();
        match lines.last_mut() {
            Some((_, before)) if depth > 4 => *before = format!("{before}\n{}", line.trim()),
            _ => lines.push((depth, line.trim().to_owned())),
        }
    }
    for (depth, line) in lines {
        if depth == 0 {
            let (actor, title) = line.split_once(": ").unwrap_or_else(|| panic!("{way}: {line}"));
            let actor = Actor::read(actor).unwrap_or_else(|| panic!("{way}: nobody is {actor}"));
            attempts.push(Attempt {
                actor,
                title: title.to_owned(),
                query: None,
                before: Vec::new(),
                then: Vec::new(),
                write: None,
                own_write: None,
                only: None,
                kept: None,
                early: Vec::new(),
                own: false,
                expect: None,
                named: false,
                breaks: false,
            });
            continue;
        }
        let (word, sql) = line.split_once([' ', '\n']).unwrap_or((&line, ""));
        let a = attempts.last_mut().unwrap();
        let step = |by, wanted| Step { by, wanted, sql: sql.to_owned() };
        match word {
            "before" => a.before.push(step(By::Mallory, Wanted::Done)),
            "first" => a.before.push(step(By::Admin, Wanted::Done)),
            "do" => a.then.push(step(By::Mallory, Wanted::Done)),
            "no" => a.then.push(step(By::Mallory, Wanted::Refused)),
            "try" => a.then.push(step(By::Mallory, Wanted::Either)),
            "hold" => a.then.push(step(By::Mallory, Wanted::Held)),
            "admin" => a.then.push(step(By::Admin, Wanted::Done)),
            "alice" => a.then.push(step(By::Alice, Wanted::Done)),
            "wilma" => a.then.push(step(By::Wilma, Wanted::Done)),
            "write" => a.write = Some(sql.to_owned()),
            "self" => a.own_write = Some(sql.to_owned()),
            "query" => a.query = Some(sql.to_owned()),
            "only" if sql == "program" => a.only = Some(Driver::Program),
            "only" if sql == "extension" => a.only = Some(Driver::Extension),
            "early" => a.early.push(step(By::Mallory, Wanted::Done)),
            "on" if sql == "own" => a.own = true,
            "breaks" => a.breaks = true,
            "named" => a.named = true,
            "expect" => a.expect = Some(sql.to_owned()),
            "kept" => a.kept = Some(Keeping::read(sql)),
            _ => panic!("{way}: what is {line}"),
        }
    }
    attempts
}
