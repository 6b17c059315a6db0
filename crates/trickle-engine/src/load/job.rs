//! The work of a load on several connections: a large table is divided into ranges, and each unit of work
//! reads one range.

use crate::db::{Connection, RefreshDriver, Row};
use crate::error::{Error, Result};
use crate::locks::oids;
use crate::registry::Entry;
use crate::trickle::Trickle;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use trickle_core::catalog::{TableId, TableKind};
use trickle_core::cost::Strategy;
use trickle_core::refresh::{Compiled, Effect, Piece, PieceParam, Plan, Program, Relation, Setting, Windows};

/// A block number that is greater than the number of any block of a table.
const END: u64 = u32::MAX as u64;

/// The sizes of tables: the blocks of the largest partition, and the bytes of all partitions together. Also
/// whether rows lack comparable addresses, as in foreign tables and tables with children. The sizes were read
/// before the snapshot, so the last range has no end.
const SIZES: &str = "
SELECT t.oid, coalesce(max(s.bytes) / current_setting('block_size')::int8, 0)::int8, coalesce(sum(s.bytes), 0)::int8,
    bool_or(c.relkind = 'f' OR c.relkind = 'r' AND c.relhassubclass)
FROM unnest($1::oid[]) t(oid)
CROSS JOIN LATERAL (SELECT t.oid UNION SELECT p.relid::oid FROM pg_partition_tree(t.oid) p) p(relid)
JOIN pg_class c ON c.oid = p.relid
CROSS JOIN LATERAL (SELECT CASE WHEN c.relkind IN ('r', 'm') THEN pg_relation_size(c.oid) END AS bytes) s
GROUP BY t.oid";

/// The size of a table.
#[derive(Clone, Copy, Default)]
struct Size {
    blocks: u64,
    bytes: u64,
}

/// A unit of work, which one connection does by one statement over one range.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unit {
    pub(super) text: Arc<str>,
    /// The parameters: the addresses at which the range begins and ends. `None` stands for the time of the
    /// refresh.
    pub(super) params: Vec<Option<String>>,
    /// The bytes of the range.
    pub(super) bytes: u64,
}

/// A load that several connections can share.
pub(super) struct Job {
    /// The `pgt_id` of the stream table.
    pub(super) member: i64,
    pub(super) stored: Relation,
    pub(super) sources: Vec<Relation>,
    pub(super) settings: Vec<Setting>,
    /// The statement of the leader that all units together replace.
    pub(super) insert: Arc<str>,
    pub(super) units: Vec<Unit>,
}

impl<C: RefreshDriver> Trickle<C> {
    /// Returns the load of a stream table of the group, if its query can be divided into units and a source
    /// is large enough.
    pub(super) async fn job(&mut self, group: &[Entry], plan: &Plan) -> Result<Option<Job>> {
        let connections = self.settings.load_connections;
        let Some(e) = group.iter().rfind(|e| !e.is_populated) else { return Ok(None) };
        let Some(member) = plan.members.iter().find(|m| m.id == e.id) else { return Ok(None) };
        if connections < 2 || self.connections.is_none() {
            return Ok(None);
        }
        let Some(table) = self.runnable(e).await?.table else { return Ok(None) };
        let registry = self.linked(&[e.relation.id]).await?;
        if registry.entries().any(|o| o.dependencies.iter().any(|d| d.relation.id == e.relation.id)) {
            return Ok(None);
        }
        let ids: BTreeSet<TableId> = table.sources().iter().map(|(t, _)| t.id).collect();
        let sizes = sizes(self.db(), &ids).await?;
        let large = |s: &Size| s.blocks > 0 && s.bytes >= self.settings.load_bytes;
        if !sizes.values().any(large) {
            return Ok(None);
        }
        let program = Compiled::new(table);
        let pieces = program.pieces(&|t| sizes.get(&t).map_or(0, |s| s.blocks))?;
        let full = program.statements(Strategy::Full, &Windows::new())?;
        let Some(insert) = full.iter().rfind(|t| t.result == Effect::Inserted) else { return Ok(None) };
        // Each range reads or hashes the other sources of its piece once more, so several pieces are divided
        // into fewer ranges.
        let ranges = if ids.len() == 1 { connections * 4 } else { connections };
        let lockable = |k: TableKind| matches!(k, TableKind::Table | TableKind::StreamTable);
        let sources = member.sources.iter().filter(|s| lockable(s.kind)).map(|s| s.relation.clone());
        Ok(Some(Job {
            member: e.id,
            stored: e.relation.clone(),
            sources: sources.collect(),
            settings: e.settings.clone(),
            insert: insert.text.clone(),
            units: units(&pieces, &sizes, ranges as u64, self.settings.load_bytes / 4),
        })
        .filter(|job| job.units.len() > 1))
    }
}

async fn sizes(db: &dyn Connection, ids: &BTreeSet<TableId>) -> Result<BTreeMap<TableId, Size>> {
    let oids = oids(ids.iter().copied());
    let rows = db.query(SIZES, &[&oids]).await.map_err(|e| Error::server("measure tables", e))?;
    let number = |n: i64| u64::try_from(n).unwrap_or(0);
    let addressed = rows.iter().filter(|r| !r.get::<bool>(3));
    let size = |r: &Row| Size { blocks: number(r.get(1)), bytes: number(r.get(2)) };
    Ok(addressed.map(|r| (TableId(r.get(0)), size(r))).collect())
}

/// Divides each piece into at most `ranges` ranges of at least `least` bytes.
fn units(pieces: &[Piece], sizes: &BTreeMap<TableId, Size>, ranges: u64, least: u64) -> Vec<Unit> {
    let mut units = Vec::new();
    for piece in pieces {
        let Some(size) = piece.over.and_then(|t| sizes.get(&t)).filter(|s| s.blocks > 0) else {
            units.push(Unit { text: piece.text.clone(), params: bound(piece, 0, END), bytes: 0 });
            continue;
        };
        let n = (size.bytes / least.max(1)).min(ranges).min(size.blocks).max(1);
        let step = size.blocks.div_ceil(n);
        let starts: Vec<u64> = (0..n).map(|i| i * step).take_while(|start| *start < size.blocks).collect();
        for (i, start) in starts.iter().enumerate() {
            let end = starts.get(i + 1).copied().unwrap_or(END);
            let (params, bytes) = (bound(piece, *start, end), size.bytes / starts.len() as u64);
            units.push(Unit { text: piece.text.clone(), params, bytes });
        }
    }
    units
}

/// Returns the parameters of a piece over a range of blocks.
fn bound(piece: &Piece, start: u64, end: u64) -> Vec<Option<String>> {
    let value = |p: &PieceParam| match p {
        PieceParam::From => Some(format!("({start},0)")),
        PieceParam::To => Some(format!("({end},0)")),
        PieceParam::Time => None,
    };
    piece.params.iter().map(value).collect()
}

#[cfg(test)]
mod tests {
    use super::{Piece, PieceParam, Size, Unit, units};
    use std::collections::BTreeMap;
    use trickle_core::catalog::TableId;

    fn cut(blocks: u64, ranges: u64, least: u64) -> Vec<Unit> {
        let params = vec![PieceParam::From, PieceParam::Time, PieceParam::To];
        let pieces = [Piece { text: "insert".into(), over: Some(TableId(1)), params }];
        let sizes = BTreeMap::from([(TableId(1), Size { blocks, bytes: blocks * 8192 })]);
        units(&pieces, &sizes, ranges, least)
    }

    #[test]
    fn ranges_follow_each_other_and_the_last_has_no_end() {
        for (blocks, ranges, least) in [(1, 4, 0), (3, 4, 0), (10, 4, 0), (1000, 16, 8192 * 100), (7, 1, 0)] {
            let units = cut(blocks, ranges, least);
            assert!(units.len() as u64 <= ranges, "{units:?}");
            let bounds = |u: &Unit| match &u.params[..] {
                [Some(from), None, Some(to)] => (from.clone(), to.clone()),
                other => panic!("{other:?}"),
            };
            let ranges: Vec<(String, String)> = units.iter().map(bounds).collect();
            assert_eq!(ranges[0].0, "(0,0)");
            assert_eq!(ranges.last().unwrap().1, "(4294967295,0)");
            assert!(ranges.windows(2).all(|w| w[0].1 == w[1].0), "{ranges:?}");
        }
        assert_eq!(cut(1000, 16, 8192 * 100).len(), 10);
    }

    #[test]
    fn what_is_not_cut_runs_once() {
        let pieces = [Piece { text: "insert".into(), over: None, params: Vec::new() }];
        assert_eq!(units(&pieces, &BTreeMap::new(), 8, 0).len(), 1);
    }
}
