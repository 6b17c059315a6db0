//! Widening of ranges of order values to neighbouring values, for window functions whose frames count rows.

use super::{
    By, Carried, Class, Formula, Pruned, Rel, Relational, Restriction, Rewrite, arity, carried, check_keys,
    check_positive, lookups, pruned, same,
};
use crate::delta::{Differ, Differentiate};
use crate::error::{Error, Result};
use crate::eval::{Context, Evaluate, Row, ZSet, group::Matcher};
use crate::expr::Expr;
use crate::graph::settled::{Input, Unsettled};
use crate::graph::{ColSet, Graph, Node, NodeId, Props, Schema};
use crate::sql::{Condition, Fragment, Render, RenderContext, Weight};
use crate::types::{Datum, Type};
use crate::values::compare_as;

/// Ranges of values, one for each row of `ranges`. A row has the columns of a partition, then the least value
/// and the greatest value. Each range is widened downwards and upwards by `by` values. The values are those
/// in column `value` of the rows in the range's partition. Equal values count once. Where a direction has
/// fewer than `by` values, the range is widened to the last value in this direction. NULL is equal to NULL in
/// the comparison of partitions.
///
/// The operator counts values, not rows. The result therefore depends only on the set of values that `rows`
/// has outside the ranges.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Widen {
    ranges: NodeId,
    rows: NodeId,
    partition: Vec<usize>,
    value: usize,
    by: u64,
}

impl Widen {
    /// Widens `ranges` by values in column `value` of `rows`. The columns `partition` of `rows` match the
    /// leading columns of `ranges`.
    pub fn new(ranges: NodeId, rows: NodeId, partition: Vec<usize>, value: usize, by: u64) -> Widen {
        Widen { ranges, rows, partition, value, by }
    }

    /// Returns the same operator with another number of values by which ranges are widened.
    #[must_use]
    pub fn by(self, by: u64) -> Widen {
        Widen { by, ..self }
    }

    /// Returns the ranges.
    pub fn ranges(&self) -> NodeId {
        self.ranges
    }
    /// Returns the rows whose values bound the widened ranges.
    pub fn rows(&self) -> NodeId {
        self.rows
    }
    /// Returns the columns of `rows` by which the rows are partitioned.
    pub fn partition(&self) -> &[usize] {
        &self.partition
    }
    /// Returns the column of `rows` that has the order values.
    pub fn value(&self) -> usize {
        self.value
    }
    /// Returns the number of values by which a range is widened in each direction.
    pub fn values(&self) -> u64 {
        self.by
    }

    /// Returns the condition that a range and a row belong to the same partition. It reads the columns of
    /// `ranges` and then of `rows`.
    fn on(&self, ranges: &Schema, rows: &Schema) -> Expr {
        let places: Vec<usize> = (0..self.partition.len()).collect();
        same(ranges, &places, rows, &self.partition)
    }
}

impl Relational for Widen {
    fn name(&self) -> &'static str {
        "Widen"
    }
    fn inputs(&self) -> Vec<NodeId> {
        vec![self.ranges, self.rows]
    }
    fn with_inputs(&self, inputs: &[NodeId]) -> Rel {
        match inputs {
            [ranges, rows] => Widen { ranges: *ranges, rows: *rows, ..self.clone() }.into(),
            _ => self.clone().into(),
        }
    }
    fn check(&self, inputs: &[&Node]) -> Result<()> {
        let [ranges, rows] = arity("Widen", inputs)?;
        check_keys("Widen", 0..self.partition.len(), ranges.schema())?;
        check_keys("Widen", self.partition.iter().copied().chain([self.value]), rows.schema())?;
        let value = rows.schema().column(self.value).filter(|c| !c.nullable).map(|c| &c.ty);
        let ends = ranges.schema().columns().iter().skip(self.partition.len()).map(|c| Some(&c.ty));
        if !ends.eq([value, value]) {
            return Err(Error::plan(
                "Widen has ranges of something else than the values, or values that may be NULL",
            ));
        }
        check_positive("Widen", rows)
    }
    fn schema(&self, inputs: &[&Node]) -> Schema {
        inputs[0].schema().clone()
    }
    fn props(&self, inputs: &[&Node], schema: &Schema) -> Props {
        let (ranges, rows) = (inputs[0].props(), inputs[1].props());
        let partition = ColSet::all(self.partition.len());
        let one = ranges.is_key(&partition);
        let mut p = Props {
            keys: Vec::new(),
            fds: Vec::new(),
            non_negative: ranges.non_negative,
            positive: ranges.positive,
            consolidated: ranges.consolidated && one,
            empty: ranges.empty,
            bounded: ranges.bounded,
            ..Props::product(ranges, rows, schema.len())
        };
        if one {
            p.add_key(partition);
        }
        p
    }
    fn unsettled(&self, inputs: &[Input<'_>], _: &Schema) -> Unsettled {
        Unsettled::of_inputs(inputs)
    }
    fn formulas<'a>(&'a self, _: &mut dyn FnMut(Formula<'a>)) {}

    fn carried(&self, inputs: &[Carried], _: &[&Node]) -> Carried {
        carried::mixed(inputs)
    }
    fn class(&self, _: &[&Node]) -> Class {
        Class::Global
    }
    fn describe(&self, inputs: &[&Node]) -> String {
        let value = inputs.get(1).and_then(|rows| rows.schema().column(self.value));
        format!("by {} of {}", self.by, value.map_or("a column", |c| &c.label))
    }
}

impl Differentiate for Widen {
    fn delta(&self, _: &mut Differ<'_>, _: NodeId) -> Result<Option<NodeId>> {
        Err(Error::plan("Widen in a query: it is a part of deltas"))
    }
}

impl Rewrite for Widen {
    fn needed(&self, _: &ColSet, inputs: &[&Node]) -> Vec<ColSet> {
        pruned::all(inputs)
    }
    fn pruned(&self, graph: &mut Graph, _: &ColSet, inputs: &[&Pruned]) -> Result<Pruned> {
        pruned::over_whole_inputs(self, graph, inputs)
    }
    fn restricted(&self, _: &mut Graph, _: &Restriction) -> Result<Option<NodeId>> {
        Ok(None)
    }
    fn needs_merged(&self, _: &Graph, _: usize, inherits: bool) -> bool {
        inherits
    }
    fn pays_to_store(&self) -> bool {
        false
    }
    fn looks_up(&self, _: &Graph, _: &By) -> Vec<By> {
        vec![By::default(), lookups::near(&self.partition, self.value)]
    }
}

impl Evaluate for Widen {
    fn eval(&self, inputs: &[&ZSet], cx: &Context<'_>) -> Result<ZSet> {
        inputs[1].require_state("Widen")?;
        let (ranges, rows) = (cx.graph.schema(self.ranges), cx.graph.schema(self.rows));
        let matcher = Matcher::new(&self.on(ranges, rows), ranges, inputs[1], rows);
        let ty = rows.column(self.value).map_or(&Type::Unknown, |c| &c.ty);
        let (low, high) = (self.partition.len(), self.partition.len() + 1);
        let by = usize::try_from(self.by).unwrap_or(usize::MAX);
        let mut out = ZSet::new();
        for (range, w) in inputs[0].iter() {
            let mut values: Vec<Datum> = Vec::new();
            matcher.pairs(range, |_, row, _| {
                values.push(row[self.value].clone());
                true
            })?;
            values.sort_by(|a, b| compare_as(ty, a, b));
            values.dedup_by(|a, b| compare_as(ty, a, b).is_eq());
            let below =
                values.iter().rev().filter(|v| compare_as(ty, v, &range[low]).is_lt()).take(by).last();
            let above = values.iter().filter(|v| compare_as(ty, v, &range[high]).is_gt()).take(by).last();
            let mut wide: Vec<Datum> = range.to_vec();
            for (end, found) in [(low, below), (high, above)] {
                if let Some(value) = found {
                    wide[end] = value.clone();
                }
            }
            out.add(Row::from(wide), w);
        }
        Ok(out)
    }
}

impl Render for Widen {
    fn render(&self, inputs: Vec<Fragment>, cx: &mut RenderContext<'_>) -> Result<Fragment> {
        let [ranges, rows] = cx.arity(inputs)?;
        rows.require_positive("Widen")?;
        let (positive, consolidated) = (ranges.positive, ranges.consolidated && cx.is_consolidated());
        let on = self.on(cx.graph().schema(self.ranges), cx.graph().schema(self.rows));
        let on = Condition::new(&on, cx.graph().schema(self.ranges), cx.graph().schema(self.rows));
        let ranges = cx.open(ranges, self.ranges);
        let mut wide = cx.enclosed(ranges, self.ranges);
        let mut rows = cx.open(rows, self.rows);
        rows.weight = Weight::one();
        let row = wide.columns.clone();
        for (end, op) in [(self.partition.len(), "<"), (self.partition.len() + 1, ">")] {
            let found = cx.nth_beyond((&row, end, op), &rows, &on, (self.value, self.by));
            wide.columns[end] =
                found.into_iter().rev().fold(row[end].clone(), |end, value| value.coalesce(end));
        }
        let weighted = !wide.weight.is_one();
        Ok(Fragment::closed(wide.close(cx.output(), weighted), positive, consolidated))
    }
}
