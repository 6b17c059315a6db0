//! Tests that compare the graph's answers with slow computations of their definitions.

use super::{Dag, StreamTableNode};
use crate::table::TableId;
use proptest::prelude::*;
use std::collections::BTreeSet;

fn t(n: u32) -> TableId {
    TableId(n)
}

fn node(id: u32, sources: &[u32]) -> StreamTableNode {
    let name = |n: u32| format!("t{n}").into();
    StreamTableNode {
        id: t(id),
        name: name(id),
        sources: sources.iter().map(|s| (t(*s), name(*s))).collect(),
        apart: false,
    }
}

fn apart(id: u32, sources: &[u32]) -> StreamTableNode {
    StreamTableNode { apart: true, ..node(id, sources) }
}

fn dag(nodes: &[(u32, &[u32])]) -> Dag {
    Dag::build(nodes.iter().map(|(id, sources)| node(*id, sources))).unwrap()
}

fn ids(set: impl IntoIterator<Item = TableId>) -> Vec<u32> {
    set.into_iter().map(|i| i.0).collect()
}

#[test]
fn levels_groups_and_closures() {
    // Tables 1 and 2 are base tables; 10 ← 1; 11 ← 1; 12 ← 10, 11; 20 ← 2.
    let d = dag(&[(12, &[10, 11]), (10, &[1]), (11, &[1]), (20, &[2])]);
    assert_eq!(d.levels(), vec![vec![t(10), t(11), t(20)], vec![t(12)]]);
    assert_eq!(d.groups(), vec![vec![t(10), t(11), t(12)], vec![t(20)]]);
    assert_eq!(ids(d.upstream(t(12))), [1, 10, 11]);
    assert_eq!(ids(d.downstream(t(1))), [10, 11, 12]);
    assert_eq!(ids(d.affected(&BTreeSet::from([t(2), t(10)]))), [10, 20, 12]);
    assert_eq!(ids(d.refresh_set(&BTreeSet::from([t(12)]))), [10, 11, 12]);
}

#[test]
fn what_stands_apart_is_refreshed_after_what_it_reads() {
    let groups = |nodes: Vec<StreamTableNode>| -> Vec<Vec<u32>> {
        Dag::build(nodes).unwrap().groups().iter().map(|g| ids(g.iter().copied())).collect()
    };
    let diamond = |meets| vec![node(12, &[1]), node(11, &[1]), meets];
    assert_eq!(groups(diamond(node(10, &[11, 12]))), [[11, 12, 10]]);
    assert_eq!(groups(diamond(apart(10, &[11, 12]))), [[11], [12], [10]]);
    // If a table reads both an apart stream table and one of its sources, all three are in one group.
    let around = vec![node(10, &[1]), apart(11, &[10]), node(12, &[10, 11])];
    assert_eq!(groups(around), [[10, 11, 12]]);
    // A path that leads out of a group and back has the same effect, even if it goes only through apart
    // readers.
    let back = vec![node(10, &[1]), apart(11, &[10]), apart(12, &[11]), node(13, &[10, 12])];
    assert_eq!(groups(back), [[10, 11, 12, 13]]);
}

#[test]
fn diamonds_name_forks_members_and_meeting_point() {
    let d = dag(&[(10, &[1]), (11, &[1]), (12, &[10, 11]), (13, &[12]), (14, &[13, 10])]);
    let found = d.diamonds();
    assert_eq!(found.len(), 2);
    assert_eq!((found[0].meets, ids(found[0].forks.clone())), (t(12), vec![1]));
    assert_eq!(ids(found[0].members.clone()), [10, 11, 12]);
    assert_eq!((found[1].meets, ids(found[1].forks.clone())), (t(14), vec![10]));
    assert_eq!(ids(found[1].members.clone()), [12, 13, 14]);
    assert!(dag(&[(10, &[1]), (11, &[10]), (12, &[11])]).diamonds().is_empty());
}

#[test]
fn a_cycle_is_refused_by_name_and_changes_nothing() {
    let mut d = dag(&[(10, &[1]), (11, &[10]), (12, &[11])]);
    let before = format!("{d:?}");
    let e = d.put(&node(10, &[1, 12])).unwrap_err();
    assert_eq!(e.sqlstate(), "42P19");
    assert_eq!(e.message(), "stream tables would form a cycle: t10 → t11 → t12 → t10");
    assert_eq!(format!("{d:?}"), before);
    assert_eq!(d.put(&node(12, &[12])).unwrap_err().message(), "stream table t12 would read itself");
    let stored = [node(10, &[12, 1]), node(11, &[10]), node(12, &[11])];
    assert_eq!(
        Dag::build(stored).unwrap_err().message(),
        "stream tables would form a cycle: t10 → t11 → t12 → t10"
    );
}

#[test]
fn replacing_and_removing_forget_what_nobody_reads() {
    let mut d = dag(&[(10, &[1, 2]), (11, &[10])]);
    d.put(&node(10, &[2, 3])).unwrap();
    assert!(!d.contains(t(1)) && d.contains(t(2)) && d.contains(t(3)));
    assert_eq!(d.remove(t(10)).unwrap_err().sqlstate(), "2BP01");
    d.remove(t(11)).unwrap();
    d.remove(t(10)).unwrap();
    assert!(d.stream_tables().is_empty() && !d.contains(t(2)));
}

#[test]
fn thousands_of_tables_deep_wide_and_braided() {
    let chain = Dag::build((0..10_000).map(|i| node(i + 1, &[i]))).unwrap();
    assert_eq!((chain.levels().len(), chain.downstream(t(0)).len()), (10_000, 10_000));
    assert_eq!(chain.groups().len(), 1);
    let fan = Dag::build((1..=1000).map(|i| node(i, &[0]))).unwrap();
    assert_eq!((fan.levels().len(), fan.groups().len()), (1, 1000));
    let braid = Dag::build((1..=1000u32).map(|i| {
        let row = i / 2 * 2;
        node(i, &[row.saturating_sub(1), row.saturating_sub(2)])
    }))
    .unwrap();
    assert!(braid.diamonds().len() > 900);
}

/// Generates stream tables with ids from 10 that read earlier ones or base tables 0..3.
fn random() -> impl Strategy<Value = Vec<StreamTableNode>> {
    let table = (prop::collection::btree_set(0u32..14, 1..4), any::<bool>());
    prop::collection::vec(table, 1..10).prop_map(|all| {
        let fit = |i: u32, s: u32| if s < 4 { s } else { 10 + (s % (i + 1)).min(i.max(1) - 1) };
        all.iter()
            .enumerate()
            .map(|(i, (sources, apart))| {
                let i = i as u32;
                let sources: BTreeSet<u32> =
                    sources.iter().map(|s| if i == 0 { s % 4 } else { fit(i, *s) }).collect();
                StreamTableNode { apart: *apart, ..node(10 + i, &sources.into_iter().collect::<Vec<_>>()) }
            })
            .collect()
    })
}

fn paths(d: &Dag, from: TableId, to: TableId) -> usize {
    if from == to { 1 } else { d.readers(from).into_iter().map(|r| paths(d, r, to)).sum() }
}

/// Whether the derived facts that a graph stores are correct for its present tables.
fn keeps_what_follows(d: &Dag) -> bool {
    let each = |id: &TableId| {
        let set = d.refresh_set(&BTreeSet::from([*id]));
        *d.chain(*id) == *set
            && d.order_of(&set.iter().copied().collect()) == set
            && d.groups().iter().any(|group| group.contains(id))
    };
    d.order() == d.levels().concat() && d.groups() == d.components() && d.stream_tables().iter().all(each)
}

/// Whether a walk leads from `from` to `to`. The walk may go along edges, and backwards along an edge whose
/// reader is not apart.
fn reaches(d: &Dag, nodes: &[StreamTableNode], from: TableId, to: TableId) -> bool {
    let apart = |id: TableId| nodes.iter().any(|n| n.id == id && n.apart);
    let mut seen = BTreeSet::from([from]);
    let mut stack = vec![from];
    while let Some(at) = stack.pop() {
        let back = d.sources(at).into_iter().filter(|s| !apart(at) && d.is_stream_table(*s));
        stack.extend(d.readers(at).into_iter().chain(back).filter(|n| seen.insert(*n)));
    }
    seen.contains(&to)
}

proptest! {
    #[test]
    fn random_graphs_agree_with_definitions(nodes in random(), pick in any::<prop::sample::Index>(), extra in 0u32..20) {
        let d = Dag::build(nodes.clone()).unwrap();
        let order = d.order();
        let at = |id: TableId| order.iter().position(|o| *o == id);
        prop_assert_eq!(order.len(), nodes.len());
        for id in order {
            for s in d.sources(*id) {
                prop_assert!(at(s) < at(*id) || at(s).is_none());
                prop_assert!(d.upstream(*id).contains(&s) && d.downstream(s).contains(id));
            }
            let met = d.diamonds().iter().any(|x| x.meets == *id);
            // Paths meet at a table if two different sources share an ancestor, or if one source is an
            // ancestor of the other.
            let lines: Vec<BTreeSet<TableId>> = d.sources(*id).into_iter().map(|s| {
                let mut up = d.upstream(s);
                up.insert(s);
                up
            }).collect();
            let shared = (0..lines.len()).any(|i| (0..i).any(|j| !lines[i].is_disjoint(&lines[j])));
            prop_assert_eq!(met, shared);
        }
        for x in d.diamonds() {
            for f in &x.forks {
                prop_assert!(paths(&d, *f, x.meets) > 1);
            }
            prop_assert!(x.members.contains(&x.meets));
        }
        prop_assert!(d.components_strong().iter().all(|c| c.len() == 1));
        // Each table is in one group, which comes after all groups of its sources. A table that is not apart
        // is in the group of its sources.
        let groups = d.groups();
        let of = |id: TableId| groups.iter().position(|g| g.contains(&id));
        prop_assert_eq!(groups.concat().into_iter().collect::<BTreeSet<_>>(), order.iter().copied().collect());
        prop_assert_eq!(groups.concat().len(), order.len());
        for n in &nodes {
            for s in d.sources(n.id).into_iter().filter(|s| d.is_stream_table(*s)) {
                prop_assert!(of(s) <= of(n.id));
                prop_assert!(n.apart || of(s) == of(n.id));
                // An apart reader is in the group of its source only if a walk leads from the reader to the
                // source.
                if n.apart && of(s) == of(n.id) {
                    prop_assert!(reaches(&d, &nodes, n.id, s));
                }
            }
        }
        prop_assert!(keeps_what_follows(&d));
        // A new source is refused if and only if it is the table itself or downstream of the table. A refusal
        // leaves the graph unchanged.
        let id = order[pick.index(order.len())];
        let mut sources = ids(d.sources(id));
        sources.push(extra);
        let closes = extra == id.0 || d.downstream(id).contains(&t(extra));
        let mut changed = d.clone();
        let result = changed.put(&node(id.0, &sources));
        prop_assert_eq!(result.is_err(), closes);
        prop_assert_eq!(changed.levels() == d.levels() || !closes, true);
        // Facts that were derived from the earlier graph are discarded.
        prop_assert!(keeps_what_follows(&changed));
        if let Some(last) = changed.stream_tables().into_iter().find(|id| changed.readers(*id).is_empty()) {
            changed.remove(last).unwrap();
            prop_assert!(keeps_what_follows(&changed));
        }
        prop_assert!(changed.components_strong().iter().all(|c| c.len() == 1));
    }
}
