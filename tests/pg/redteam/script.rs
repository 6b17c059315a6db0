//! Attempts as they are written down.
//!
//! ```text
//! owner of a source: an implicit cast from a type of the owner's to the column's
//!     before CREATE TYPE mallory.pair AS (x int)
//!     do ALTER TABLE shop.t ALTER v TYPE mallory.pair USING row(v)
//! ```
//!
//! | step | what |
//! |---|---|
//! | `before`, `do` | mallory, before and after the stream table is made; succeeds, as mallory may |
//! | `no` | mallory; is refused |
//! | `try` | mallory; is refused or not |
//! | `hold` | mallory, in a transaction that stays open to the end |
//! | `admin`, `alice`, `wilma` | the superuser, the owner of what mallory may not read, and a writer; succeeds |
//! | `first` | the superuser, before the stream table is made |
//! | `write`, `self` | what wilma and mallory write before each operation, `{id}` being another number each time; `-` for nothing |
//! | `query` | of the stream table |
//! | `only`, `kept` | with one driver, in one mode |
//! | `early` | mallory, before there is a catalog, with CREATE on the database |
//! | `on own` | operations are done to the stream table of mallory's, `own`, over `mallory.m` |
//! | `expect` | what the stream table is to hold, where others than who made it read something else in its query |
//! | `named` | the query names what mallory makes, so whoever gives it anew agrees to it, and it is not given anew |
//! | `breaks` | mallory may break the stream table by it, as its owner, or has what alters it wait, as a writer |
//!
//! `{source}` and `{mine}` are the numbers of `shop.t` and `mallory.m`, `{database}` is the database.
//!
//! A line that begins further in goes on with the one before. `mallory` stands for a role that the test
//! names.

use super::Driver;
use super::operations::Keeping;
use std::path::Path;

/// The attacker, and so the rights that mallory has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Actor {
    /// Owns `shop.t`, which the stream table reads.
    Owner,
    /// Owns a stream table; with the extension one that mallory made.
    Grantee,
    /// Owned `shop.t` until alice got it.
    Former,
    /// May read the stream table.
    Reader,
    /// May insert into `shop.t`.
    Writer,
    /// May create in schema public, which is in everybody's search_path.
    Creator,
    /// Has nothing but CONNECT and TEMPORARY.
    Guest,
    /// Nobody in particular: what is PUBLIC's.
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

    /// May break what reads the source by what an owner may do.
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
    /// Done, and its transaction stays open.
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
    /// Of the stream table of mallory's.
    pub(super) own: bool,
    /// The rows that it is to hold, where the query gives others to the superuser who compares.
    pub(super) expect: Option<String>,
    /// Its query names what mallory makes: to give it anew is to agree to that.
    pub(super) named: bool,
    pub(super) breaks: bool,
}

impl Attempt {
    /// Whether mallory may break what is attacked: as the owner of it, or of what it reads.
    pub(super) fn may_break(&self) -> bool {
        self.actor.owns_the_source() || self.breaks || self.own
    }
}

/// The attempts by one way.
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
