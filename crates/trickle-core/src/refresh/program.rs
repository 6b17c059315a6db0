//! The refresh program of a compiled stream table.

use super::plan::{Bind, Effect, Program, ReaderView, Template, Windows};
use crate::cost::Strategy;
use crate::error::{Error, Result};
use crate::expr::Moment;
use crate::sql::ast::{Param, Statement};
use crate::sql::{Expecting, print};
use crate::stream_table::{Captured, Refresh, StreamTable};
use crate::table::TableId;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

/// A part of the statement that fills a stream table. The parts can run on several connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The SQL text of the part.
    pub text: Arc<str>,
    /// The table from which the part reads one range of row addresses. `None` means that the part reads all
    /// its tables whole.
    pub over: Option<TableId>,
    /// The parameters of the part, each sent as text.
    pub params: Vec<PieceParam>,
}

/// The meaning of a parameter of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PieceParam {
    /// The first address of the range.
    From,
    /// The first address after the range.
    To,
    /// The time of the refresh, which is the only parameter of the statement that was split.
    Time,
}

/// The [`Program`] of a [`StreamTable`], which prints the table's statements and turns their parameters into
/// binds.
#[derive(Debug)]
pub struct Compiled {
    table: Arc<StreamTable>,
    ways: &'static [Strategy],
    /// The part of a source whose changes were captured, if changes of the rest were not captured.
    captured: Option<Captured>,
    /// The texts that were printed before. Under a steady stream of changes, each refresh runs the same
    /// statements.
    printed: Mutex<HashMap<Key, Arc<[Template]>>>,
}

/// The facts on which the statements of a refresh depend.
type Key = (Strategy, Windows);

/// The greatest number of printed programs that are stored for a stream table.
const KEPT: usize = 64;

impl Compiled {
    /// Makes the program of a stream table.
    pub fn new(table: impl Into<Arc<StreamTable>>) -> Compiled {
        let table = table.into();
        let ways: &[Strategy] = match table.has_affected_groups() {
            true => &Strategy::COSTED,
            false => &[Strategy::Delta, Strategy::FullDifference, Strategy::Full],
        };
        Compiled { table, ways, captured: None, printed: Mutex::default() }
    }

    /// Adds the strategy [`Strategy::Part`], for changes of a source that were captured in part. Returns
    /// `None` if the strategy is impossible.
    ///
    /// # Errors
    /// Fails if a plan breaks an operator's contract, which is a bug in a rule.
    pub fn with_part(self, captured: Captured) -> Result<Option<Compiled>> {
        let sources = self.table.sources_of_refreshes();
        let possible = self.table.part(&captured, &sources)?.is_some();
        Ok(possible.then_some(Compiled { captured: Some(captured), ..self }))
    }

    /// Returns how the answer to a statement counts rows of the result. Rows of other tables do not count.
    fn result(&self, statement: &Statement) -> Effect {
        let own = &self.table.layout().result.name;
        match statement {
            Statement::Query(_) => Effect::Counts,
            Statement::Insert(i) if i.table == *own => Effect::Inserted,
            Statement::Update(u) if u.table == *own => Effect::Updated,
            Statement::Delete(d) if d.table == *own => Effect::Deleted,
            _ => Effect::Nothing,
        }
    }

    /// Splits the statement that fills the result in a full refresh into parts, as [`StreamTable::load`]
    /// does.
    ///
    /// # Errors
    /// The errors of [`StreamTable::load`].
    pub fn pieces(&self, size: &dyn Fn(TableId) -> u64) -> Result<Vec<Piece>> {
        let piece = |(statement, over): (Statement, Option<TableId>)| {
            let printed = print(&statement);
            let param = |p: &Param| match p {
                Param::Value(0) if over.is_some() => Ok(PieceParam::From),
                Param::Value(1) if over.is_some() => Ok(PieceParam::To),
                Param::Clock(Moment::Now) => Ok(PieceParam::Time),
                _ => Err(Error::plan("a part of a load has other parameters than its bounds and the time")),
            };
            let params = printed.params.iter().map(param).collect::<Result<Vec<_>>>()?;
            Ok(Piece { text: printed.text.into(), over, params })
        };
        self.table.load(size)?.into_iter().map(piece).collect()
    }

    /// Returns the statements of a strategy.
    fn made(&self, strategy: Strategy, windows: &Windows) -> Result<Vec<Statement>> {
        let changed: BTreeSet<TableId> = windows.keys().copied().collect();
        let sources = Expecting::new(self.table.sources_of_refreshes(), windows);
        let how = match strategy {
            Strategy::NoData => return Ok(Vec::new()),
            Strategy::Delta => Refresh::Delta,
            Strategy::FullDifference => Refresh::Difference,
            Strategy::Full => Refresh::Replace,
            Strategy::AffectedGroups => Refresh::AffectedGroups,
            Strategy::Part => {
                let made = match &self.captured {
                    Some(captured) => self.table.part(captured, &sources)?,
                    None => None,
                };
                return Ok(vec![made.ok_or_else(|| Error::plan("no part of this query can be recomputed"))?]);
            }
        };
        self.table.refresh_from(how, &changed, &sources)
    }

    fn print(&self, strategy: Strategy, windows: &Windows) -> Result<Arc<[Template]>> {
        let statements = self.made(strategy, windows)?;
        let template = |statement: &Statement| {
            let printed = print(statement);
            let binds = printed.params.iter().map(bind).collect::<Result<Vec<_>>>()?;
            let result = self.result(statement);
            Ok(Template { text: printed.text.into(), binds: binds.into(), result })
        };
        statements.iter().map(template).collect()
    }
}

/// Returns the bind of a parameter. A bind names no source, since all sources of a refresh are read up to one
/// frontier.
fn bind(param: &Param) -> Result<Bind> {
    match param {
        Param::FrontierSnapshot(_) => Ok(Bind::FrontierSnapshot),
        Param::FrontierXid(_) => Ok(Bind::FrontierXid),
        Param::FrontierCommand(_) => Ok(Bind::FrontierCommand),
        Param::Clock(moment) => Ok(Bind::Clock(*moment)),
        Param::Pending(_) | Param::Value(_) => {
            Err(Error::plan(format!("parameter {param:?} of a refresh program has no meaning")))
        }
    }
}

impl Program for Compiled {
    fn strategies(&self) -> &[Strategy] {
        self.ways
    }
    fn takes_part(&self) -> bool {
        self.captured.is_some()
    }

    fn statements(&self, strategy: Strategy, windows: &Windows) -> Result<Arc<[Template]>> {
        // The statements of a full refresh are the same for all sets of changed sources.
        let windows = if strategy.is_incremental() { windows.clone() } else { Windows::new() };
        let key = (strategy, windows);
        let mut kept = self.printed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = kept.get(&key) {
            return Ok(known.clone());
        }
        let all = self.print(strategy, &key.1)?;
        if kept.len() >= KEPT {
            kept.clear();
        }
        kept.insert(key, all.clone());
        Ok(all)
    }

    fn reads_clock(&self) -> bool {
        self.table.reads_clock()
    }

    /// Returns how readers learn of a refresh by this strategy. A stream table that another stream table
    /// reads is captured like any source, so its changes are in its buffer after every refresh. A replacement
    /// writes twice as many changes as the table has rows. For so many changes, a recompute of the readers is
    /// cheaper than their delta.
    fn feed(&self, strategy: Strategy) -> ReaderView {
        if strategy == Strategy::Full { ReaderView::Replaced } else { ReaderView::Changes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::MemoryCatalog;
    use crate::{Options, compile};

    fn program(sql: &str) -> Compiled {
        let catalog = MemoryCatalog::from_ddl(
            "CREATE TABLE t (id int PRIMARY KEY, k int, v bigint); CREATE TABLE u (id int PRIMARY KEY, n text)",
        )
        .unwrap();
        Compiled::new(compile(sql, &catalog, &Options::new("public", "st")).unwrap().incremental().unwrap())
    }

    #[test]
    fn frontier_parameters_are_bound() {
        let p = program("SELECT t.id, n FROM t JOIN u ON t.k = u.id");
        let changed = Windows::from([(TableId(1), Some(64)), (TableId(2), Some(8))]);
        let delta = p.statements(Strategy::Delta, &changed).unwrap();
        assert_eq!(delta.len(), 1);
        assert_eq!(delta[0].result, Effect::Counts);
        for bind in [Bind::FrontierSnapshot, Bind::FrontierXid, Bind::FrontierCommand] {
            assert_eq!(delta[0].binds.iter().filter(|b| **b == bind).count(), 2, "one per source");
        }
        for i in 1..=delta[0].binds.len() {
            assert!(delta[0].text.contains(&format!("${i}::")), "{}", delta[0].text);
        }
        assert!(delta[0].text.contains("::text::pg_snapshot"), "{}", delta[0].text);
        let expected = |n: i64| delta[0].text.contains(&format!("generate_series(1::bigint, {n}::bigint)"));
        assert!(expected(64) && expected(8), "{}", delta[0].text);
        let one = p.statements(Strategy::Delta, &Windows::from([(TableId(2), None)])).unwrap();
        assert!(one[0].binds.len() == 3 && !one[0].text.contains("generate_series"));
        assert!(p.statements(Strategy::Delta, &Windows::new()).unwrap().is_empty());
    }

    #[test]
    fn the_full_ways_bind_nothing_and_count_the_result_alone() {
        let p = program("SELECT k, sum(v) AS s FROM t GROUP BY k");
        let all = Windows::from([(TableId(1), Some(4))]);
        let full = p.statements(Strategy::Full, &all).unwrap();
        let counted: Vec<Effect> = full.iter().map(|t| t.result).filter(|r| *r != Effect::Nothing).collect();
        assert_eq!(counted, [Effect::Deleted, Effect::Inserted]);
        let difference = p.statements(Strategy::FullDifference, &all).unwrap();
        assert_eq!(difference.last().map(|t| t.result), Some(Effect::Counts));
        assert!(full.iter().chain(difference.iter()).all(|t| t.binds.is_empty()));
        assert!(!p.strategies().contains(&Strategy::AffectedGroups), "its delta reads less");
        assert_eq!(p.feed(Strategy::Full), ReaderView::Replaced);
    }

    #[test]
    fn equal_arguments_give_equal_statements() {
        let p = program("SELECT k, count(*) AS n FROM t GROUP BY k");
        let all = Windows::from([(TableId(1), Some(4))]);
        for strategy in p.strategies() {
            assert_eq!(p.statements(*strategy, &all).unwrap(), p.statements(*strategy, &all).unwrap());
        }
    }
}
