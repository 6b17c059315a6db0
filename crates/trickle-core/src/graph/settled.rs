//! The parts of a query's result that SQL does not determine.

use super::{ColSet, Graph, Node, NodeId, NodeMap, Schema};
use crate::agg::{AggCall, ValueOf, facts};
use crate::expr::Expr;
use crate::rel::Window;
use crate::window::Order;

/// The columns and rows of a query's result that SQL does not determine.
///
/// - In groups, under DISTINCT and in set operations, PostgreSQL may return any one of several equal values.
///   The value of `max` may therefore be 1.0 or 1.00. A refresh chooses by the image. If a person runs
///   the same query, it may return another of the equal values.
/// - A sum of floats is rounded after each step. The last digits of the sum therefore depend on the order in
///   which the server reads the rows. The server chooses this order on each run.
///
/// The tables determine everything else in a result.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unsettled {
    /// Columns for which the query determines the values, but not their images.
    pub(crate) written: ColSet,
    /// Columns whose values depend on the image of an unsettled value. An example is the text of such a
    /// value.
    pub(crate) values: ColSet,
    /// Columns with sums of floats, or with floats computed from such sums. Their values are determined
    /// except for rounding. Other dependences on the last digits are not recorded, such as those of texts and
    /// filters.
    pub rounded: ColSet,
    /// The columns of `values` that are lists whose elements are determined, but not their
    /// order. The order is that in which the server read the values.
    pub shuffled: ColSet,
    /// Whether the set of rows depends on an unsettled value.
    pub(crate) rows: bool,
}

/// An input of an operator, with the parts of its result that SQL does not determine.
pub struct Input<'a> {
    pub(crate) node: &'a Node,
    pub(crate) open: Unsettled,
}

impl Unsettled {
    /// Returns the parts of the result of `root` that SQL does not determine.
    pub fn of(graph: &Graph, root: NodeId) -> Unsettled {
        let mut open: NodeMap<Unsettled> = NodeMap::new();
        for id in graph.reachable(root) {
            let inputs = graph.inputs(id).iter();
            let inputs: Vec<Input<'_>> = inputs
                .map(|i| Input { node: graph.node(*i), open: open.get_ref(*i).cloned().unwrap_or_default() })
                .collect();
            let mine = graph.rel(id).as_operator().unsettled(&inputs, graph.schema(id));
            open.insert(id, mine);
        }
        open.remove(root).unwrap_or_default()
    }

    /// Returns all columns for which SQL does not determine the value or its image. Columns that differ only
    /// by rounding are not included.
    pub fn columns(&self) -> ColSet {
        self.written.union(&self.values)
    }

    /// Whether the query determines the values of its result, and how often each value occurs. The images of
    /// values and the order of a list's elements may still be undetermined.
    pub fn is_settled_by_value(&self) -> bool {
        self.values.is_subset(&self.shuffled) && !self.rows
    }

    pub(crate) fn reads(&self, e: &Expr) -> bool {
        let mut any = false;
        e.each_column(|c| any |= self.written.contains(c) || self.values.contains(c));
        any
    }

    /// Whether the value of `e` depends on an unsettled value.
    pub(crate) fn decides(&self, e: &Expr) -> bool {
        let mut value = false;
        e.each_column(|c| value |= self.values.contains(c));
        value || (self.reads(e) && !e.respects_equality())
    }

    /// Whether `e` is a float computed from a float that was added up.
    pub(crate) fn rounds(&self, e: &Expr) -> bool {
        let mut any = false;
        e.each_column(|c| any |= self.rounded.contains(c));
        any && e.ty().is_float()
    }

    /// Returns the undetermined parts of all inputs, for an operator that passes on rows of its inputs.
    pub(crate) fn of_inputs(inputs: &[Input<'_>]) -> Unsettled {
        inputs.iter().fold(Unsettled::default(), |all, input| all.plus(&input.open))
    }

    /// Returns the undetermined parts of the first (or only) input.
    pub(crate) fn of_first(inputs: &[Input<'_>]) -> Unsettled {
        inputs.first().map(|input| input.open.clone()).unwrap_or_default()
    }

    /// Returns the undetermined parts for an operator that returns one of several equal rows.
    pub(crate) fn of_one_row_of_each(inputs: &[Input<'_>], schema: &Schema) -> Unsettled {
        let inexact = (0..schema.len()).filter(|c| !schema.columns()[*c].ty.is_exact()).collect();
        let all = Unsettled::of_inputs(inputs);
        let (written, rows) = (all.written.union(&inexact), all.rows || !all.values.is_empty());
        Unsettled { written, rows, ..all }
    }

    /// Returns the undetermined parts of the pairs of rows of two inputs. Also returns whether the condition
    /// `on` depends on undetermined parts.
    pub(crate) fn of_pairs(inputs: &[Input<'_>], on: &Expr) -> (Unsettled, bool) {
        let [left, right] = inputs else { return (Unsettled::of_inputs(inputs), true) };
        let pairs = left.open.beside(&right.open, left.node.schema().len());
        let decided = pairs.decides(on);
        (pairs, decided)
    }

    fn plus(&self, other: &Unsettled) -> Unsettled {
        Unsettled {
            written: self.written.union(&other.written),
            values: self.values.union(&other.values),
            rounded: self.rounded.union(&other.rounded),
            shuffled: self.shuffled.union(&other.shuffled),
            rows: self.rows || other.rows,
        }
    }

    fn beside(&self, right: &Unsettled, width: usize) -> Unsettled {
        let [written, values, rounded, shuffled] =
            [&right.written, &right.values, &right.rounded, &right.shuffled].map(|set| set.shifted(width));
        self.plus(&Unsettled { written, values, rounded, shuffled, rows: right.rows })
    }
}

/// Returns the unsettled columns of a window. The unsettled columns of the window's input are included. A
/// call is unsettled if it depends on an order that the query does not determine, or reads an unsettled
/// value.
pub(crate) fn windows(w: &Window, below: Unsettled, schema: &Schema) -> Unsettled {
    let settles = w.order().iter().any(|k| k.settles);
    let mut keys = w.partition().iter().copied().chain(w.order().iter().map(|k| k.column));
    let moved = below.rows || keys.any(|c| below.values.contains(c));
    let width = schema.len() - w.calls().len();
    let mut open = below.clone();
    for (i, c) in w.calls().iter().enumerate() {
        if made_of_rounded(&c.call, &below) || !c.is_window_function() && adds(&c.call) {
            open.rounded.insert(width + i);
        }
        let picks = !c.is_window_function() && (chooses(&c.call) || depends(&c.call, &below));
        let numbered = settles && c.order() != Order::Peers;
        if moved || numbered || picks || c.exprs().any(|e| below.decides(e)) {
            open.values.insert(width + i);
        } else if c.exprs().any(|e| below.reads(e)) {
            open.written.insert(width + i);
        }
    }
    open
}

/// Returns the unsettled columns of a grouping: those among its keys and its `n` values. The function `value`
/// gets the position of a value. It returns two facts: whether the image of this value is undetermined, and
/// whether the value itself is undetermined.
pub(crate) fn groups(
    below: &Unsettled,
    schema: &Schema,
    keys: &[usize],
    n: usize,
    value: &dyn Fn(usize, &Unsettled) -> (bool, bool),
) -> Unsettled {
    let rows = below.rows || keys.iter().any(|k| below.values.contains(*k));
    let mut open = Unsettled { rows, ..Unsettled::default() };
    let inexact = |c: usize| schema.column(c).is_some_and(|c| !c.ty.is_exact());
    let mut note = |c: usize, written: bool, differs: bool| {
        if inexact(c) && (written || differs) {
            open.written.insert(c);
        }
        if differs {
            open.values.insert(c);
        }
    };
    for (c, k) in keys.iter().enumerate() {
        note(c, true, below.values.contains(*k));
    }
    for i in 0..n {
        let (written, differs) = value(i, below);
        note(keys.len() + i, written, differs || rows);
    }
    open
}

/// Whether the call adds up floats, so that it rounds after each step.
pub(crate) fn adds(call: &AggCall) -> bool {
    let picks = call.within_group || facts(&call.sig).value == ValueOf::Pick;
    call.sig.ret.is_float() && !picks && call.args.iter().any(|e| e.ty().is_float())
}

/// Whether the call returns a float and reads a float that was added up.
pub(crate) fn made_of_rounded(call: &AggCall, below: &Unsettled) -> bool {
    call.sig.ret.is_float() && call.exprs().any(|e| below.rounds(e))
}

/// Whether the call makes a list of values in the order in which it reads them.
pub(crate) fn lists(call: &AggCall) -> bool {
    !call.distinct && matches!(facts(&call.sig).value, ValueOf::List | ValueOf::TextList)
}

/// Whether the call picks one of several equal values, or depends on the order of equal values.
pub(crate) fn chooses(call: &AggCall) -> bool {
    let total = facts(&call.sig).value == ValueOf::Total && !call.distinct;
    !total && call.exprs().any(|e| !e.is_exact())
}

/// Whether the value of the call depends on the images of equal values, or on which of the equal values comes
/// first.
pub(crate) fn depends(call: &AggCall, open: &Unsettled) -> bool {
    let texts = match facts(&call.sig).value {
        ValueOf::TextList | ValueOf::Texts | ValueOf::Unknown => true,
        ValueOf::Total | ValueOf::Pick | ValueOf::List | ValueOf::Function => false,
    };
    let ordered = !call.within_group && call.order_by.iter().any(|k| !k.expr.is_exact());
    let picked = call.distinct && call.args.iter().any(|e| !e.is_exact());
    call.exprs().any(|e| open.decides(e))
        || ordered
        || (texts && (picked || call.args.iter().any(|e| open.reads(e))))
}
