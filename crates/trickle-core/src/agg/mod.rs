//! Aggregates, one file per family. [`FAMILIES`] is the list of families.
//!
//! A family defines how its aggregates are updated ([`Upkeep`]), and computes their values over a group.

mod addition;
mod average;
mod bits;
mod boolean;
mod count;
mod extremum;
mod ordered;
mod other;
mod statistics;
mod sum;

pub(crate) use sum::nan;

use crate::error::Result;
use crate::expr::{Expr, FuncSig, SortKey};
use crate::types::{Datum, Numeric, Type};
use crate::values::compare_as;
use std::cmp::Ordering;
use std::sync::Arc;

/// All families of aggregates. The first family that has a name and accepts the argument types defines the
/// aggregate.
pub const FAMILIES: &[&dyn Family] = &[
    &count::Count,
    &sum::Sum,
    &average::Average,
    &extremum::Extremum,
    &boolean::Boolean,
    &bits::Bits,
    &statistics::Statistics,
    &ordered::Ordered,
    &other::Other,
];

/// A call of an aggregate in a [`Reduce`](crate::rel::Reduce).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AggCall {
    /// The signature of the aggregate.
    pub sig: Arc<FuncSig>,
    /// The arguments, over the columns of the input. The list is empty for `count(*)`.
    pub args: Vec<Expr>,
    /// Whether the call has `DISTINCT`.
    pub distinct: bool,
    /// The condition of `FILTER (WHERE …)`.
    pub filter: Option<Expr>,
    /// The sort keys of `ORDER BY` inside the call, or of `WITHIN GROUP (ORDER BY …)`.
    pub order_by: Vec<SortKey>,
    /// Whether `order_by` has the keys of `WITHIN GROUP`.
    pub within_group: bool,
}

/// The method by which the value of an aggregate is updated after a change of its group.
pub enum Upkeep {
    /// The accumulators of a group's change are added to the accumulators of the group. The result is always
    /// exact.
    Linear(Linear),
    /// The value is the least or the greatest value of the group. A net insert may extend the stored value.
    /// After a net delete of the stored value, the group is recomputed.
    Extremum {
        /// Whether the aggregate is `max` and not `min`.
        greatest: bool,
    },
    /// The groups that a change touched are recomputed.
    Rescan,
}

/// An accumulator: `Σ weight × value` over the rows of a group that pass the filter and whose value is not
/// NULL. The total is never NULL. If no row counts, the total is 0.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Acc {
    /// The value that is added up. With `None`, the accumulator counts rows.
    pub value: Option<Expr>,
    /// The condition under which a row counts. With `None`, all rows count.
    pub filter: Option<Expr>,
    /// The type of the total: `bigint` or `numeric`. It is so wide that sums do not overflow in practice.
    pub ty: Type,
}

impl Acc {
    /// Counts the rows for which `filter` is true.
    pub fn count(filter: Option<Expr>) -> Acc {
        Acc { value: None, filter, ty: Type::Int8 }
    }
    /// Adds up `value`, which is an integer or a numeric.
    pub fn sum(value: Expr, filter: Option<Expr>) -> Acc {
        let ty = match value.ty() {
            Type::Int2 | Type::Int4 => Type::Int8,
            _ => Type::Numeric(None),
        };
        Acc { value: Some(value), filter, ty }
    }
    /// Returns the total over no rows, with the scale that every total has. Values that come and leave
    /// therefore do not change the scale of a total.
    pub fn zero(&self) -> Datum {
        match self.value.as_ref().and_then(Expr::fixed_scale) {
            Some(scale) if matches!(self.ty, Type::Numeric(_)) => {
                Datum::Numeric(Arc::new(Numeric::Finite { unscaled: 0.into(), scale }))
            }
            _ => Datum::Int(0),
        }
    }
    /// Returns the accumulator without the parts of its filter whose value follows from properties of the
    /// columns of `input`.
    #[must_use]
    pub fn simplified(self, input: &crate::expr::Schema) -> Acc {
        let filter = self.filter.map(|f| f.simplified(input)).filter(|f| !f.conjuncts().is_empty());
        Acc { filter, ..self }
    }
    /// Returns the accumulator that adds up partial totals of this accumulator. The partial totals are in
    /// column `index`.
    #[must_use]
    pub fn merge(&self, index: usize) -> Acc {
        Acc { value: Some(Expr::column(index, self.ty.clone())), filter: None, ty: self.ty.clone() }
    }
}

/// An aggregate as a function of accumulators.
pub struct Linear {
    /// The accumulators from which the value is computed.
    pub accs: Vec<Acc>,
    /// Returns the aggregate's value as an expression over its accumulators, which are passed in the order of
    /// `accs`.
    pub finish: fn(&AggCall, &[Expr]) -> Expr,
}

/// Facts about the value of an aggregate, on which plans and comparisons of results rely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The groups for which the value is NULL. Groups without rows are not considered.
    pub null: NullValue,
    /// The way in which the value depends on the values of the arguments.
    pub value: ValueOf,
    /// The way in which the value depends on the order of the rows. The last bits of a sum of floats are
    /// ignored.
    pub order: OrderOf,
}

/// The groups for which the value of an aggregate is NULL. Groups without rows are not considered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NullValue {
    /// The value is never NULL.
    Never,
    /// The value is NULL for a group in which all arguments are NULL.
    WithoutValues,
    /// The engine does not know when the value is NULL.
    Unknown,
}

/// The ways in which an aggregate's value can depend on the values of its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueOf {
    /// The value is a number of rows, or a sum or mean of all values.
    Total,
    /// The value is one of the argument's values.
    Pick,
    /// The value is a list of the argument's values.
    List,
    /// The value is a list of the argument's values as text.
    TextList,
    /// The value contains the argument's values as text, but is not a list.
    Texts,
    /// The value is another function of the argument's values.
    Function,
    /// The dependence is not known. The value may depend on the images of equal values.
    Unknown,
}

/// The ways in which an aggregate's value can depend on the order of the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderOf {
    /// The value is the same for every order.
    Free,
    /// The value may differ with the order, and SQL does not determine which value is returned.
    Open,
    /// The value differs with the order, and ORDER BY determines which value is returned.
    Matters,
}

impl Facts {
    /// The facts about an aggregate that is not one of PostgreSQL's own.
    pub const UNKNOWN: Facts =
        Facts { null: NullValue::Unknown, value: ValueOf::Unknown, order: OrderOf::Matters };

    /// Makes the facts of an aggregate that is NULL only where all arguments are NULL, and whose value does
    /// not depend on the order.
    const fn of(value: ValueOf) -> Facts {
        Facts { null: NullValue::WithoutValues, value, order: OrderOf::Free }
    }
}

/// Returns the facts about the value of an aggregate.
pub fn facts(sig: &FuncSig) -> Facts {
    match &sig.schema {
        None => family(sig).facts(&sig.name),
        Some(_) => Facts::UNKNOWN,
    }
}

/// A family of aggregates that are computed and updated in the same way.
pub trait Family: Sync {
    /// Returns the names of the family's aggregates.
    fn names(&self) -> &'static [&'static str];

    /// Returns the signature of `name`, an aggregate of this family, for arguments of these types. Returns
    /// `None` where the family has no such signature.
    fn signature(&self, name: &str, args: &[Type]) -> Option<FuncSig>;

    /// Whether this is the signature of an aggregate of PostgreSQL that belongs to the family.
    fn knows(&self, sig: &FuncSig) -> bool {
        self.names().contains(&&*sig.name) && self.signature(&sig.name, &sig.args).is_some()
    }

    /// Returns the value over no rows, which only a query without GROUP BY returns. Returns `None` where the
    /// engine does not know the value.
    fn of_nothing(&self, _call: &AggCall) -> Option<Datum> {
        Some(Datum::Null)
    }

    /// Whether the evaluator replaces the value of a call by a substitute of the same type. Groups of equal
    /// rows get equal substitutes.
    fn is_opaque(&self, _call: &AggCall) -> bool {
        false
    }

    /// Returns the facts about the value of `name`, an aggregate of this family.
    fn facts(&self, name: &str) -> Facts;

    /// Returns how the value of a call is updated. Callers pass no calls with volatile arguments. For a
    /// DISTINCT aggregate, callers do not use [`Upkeep::Linear`] if the method returns it.
    fn upkeep(&self, _call: &AggCall) -> Upkeep {
        Upkeep::Rescan
    }

    /// Returns the value of a call over one group. `rows` has the evaluated arguments of each input row that
    /// passed FILTER and DISTINCT, in the order of ORDER BY. For WITHIN GROUP, each row has the sort keys
    /// after the arguments. A row with weight n occurs n times.
    ///
    /// # Errors
    /// Fails with errors that the aggregate raises, such as an overflow. Fails too if the evaluator cannot
    /// compute the aggregate.
    fn value(&self, call: &AggCall, rows: &[Vec<Datum>]) -> Result<Datum>;
}

/// Returns the signature of a built-in aggregate with this name and these argument types.
pub fn resolve(name: &str, args: &[Type]) -> Option<Arc<FuncSig>> {
    let named = FAMILIES.iter().filter(|f| f.names().contains(&name));
    named.filter_map(|f| f.signature(name, args)).next().map(Arc::new)
}

/// Whether a built-in aggregate has this name, for any argument types.
pub fn is_aggregate(name: &str) -> bool {
    FAMILIES.iter().any(|f| f.names().contains(&name))
}

/// Returns the signature of a built-in ordered-set aggregate, for arguments of types `args` and keys of
/// WITHIN GROUP of types `keys`.
pub fn resolve_ordered(name: &str, args: &[Type], keys: &[Type]) -> Option<Arc<FuncSig>> {
    ordered::signature(name, args, keys).map(Arc::new)
}

/// Returns the family of an aggregate, by the aggregate's signature.
pub fn family(sig: &FuncSig) -> &'static dyn Family {
    let known = FAMILIES.iter().find(|f| sig.schema.is_none() && f.knows(sig));
    known.copied().unwrap_or(&other::Other)
}

/// Compares two rows by the sort keys of a call.
pub(crate) fn by_keys(call: &AggCall, a: &[Datum], b: &[Datum]) -> Ordering {
    for (key, (x, y)) in call.order_by.iter().zip(a.iter().zip(b)) {
        let order = match (x.is_null(), y.is_null()) {
            (true, true) => Ordering::Equal,
            (true, false) if key.nulls_first => Ordering::Less,
            (true, false) => Ordering::Greater,
            (false, true) if key.nulls_first => Ordering::Greater,
            (false, true) => Ordering::Less,
            (false, false) if key.descending => compare_as(key.expr.ty(), y, x),
            (false, false) => compare_as(key.expr.ty(), x, y),
        };
        if order.is_ne() {
            return order;
        }
    }
    Ordering::Equal
}

/// Returns a substitute for the value of an aggregate that the evaluator does not know. Equal rows give equal
/// substitutes.
fn opaque(call: &AggCall, rows: &[Vec<Datum>]) -> Datum {
    let mut args: Vec<Datum> = rows.iter().map(|r| Datum::Record(r.as_slice().into())).collect();
    if call.order_by.is_empty() {
        args.sort();
    }
    crate::expr::opaque::value(&call.sig, &args)
}

impl AggCall {
    /// Makes a call without DISTINCT, FILTER and ORDER BY.
    pub fn new(sig: Arc<FuncSig>, args: Vec<Expr>) -> AggCall {
        AggCall { sig, args, distinct: false, filter: None, order_by: Vec::new(), within_group: false }
    }

    /// Makes the call `count(*)`.
    pub fn count_star() -> AggCall {
        AggCall::new(Arc::new(count::signature(&[])), Vec::new())
    }

    /// Returns how the value of this call is updated.
    pub fn upkeep(&self) -> Upkeep {
        // DISTINCT does not affect `min` and `max`, so the way in which they are updated stays.
        let upkeep = family(&self.sig).upkeep(self);
        match upkeep {
            Upkeep::Linear(_) if self.distinct => Upkeep::Rescan,
            other => other,
        }
    }

    /// Returns every expression in the call.
    pub fn exprs(&self) -> impl Iterator<Item = &Expr> {
        self.args.iter().chain(&self.filter).chain(self.order_by.iter().map(|k| &k.expr))
    }

    /// Whether the call can raise an error on some rows.
    pub fn can_raise(&self) -> bool {
        self.sig.raises || self.exprs().any(Expr::can_raise)
    }

    /// Whether the aggregate is PostgreSQL's `min` or `max`.
    pub(crate) fn is_extremum(&self) -> bool {
        self.sig.schema.is_none() && matches!(&*self.sig.name, "min" | "max")
    }

    /// Returns the expressions for which any of several equal values may be picked. DISTINCT, `min`, `max`
    /// and WITHIN GROUP compare these expressions.
    pub(crate) fn picked(&self) -> impl Iterator<Item = &Expr> {
        let counts = facts(&self.sig).null == NullValue::Never;
        let (args, keys) = match self.within_group {
            true => (false, true),
            false => (self.is_extremum() || (self.distinct && !counts), false),
        };
        let args = self.args.iter().filter(move |_| args);
        args.chain(self.order_by.iter().filter(move |_| keys).map(|k| &k.expr))
    }

    /// Returns the call with `f` applied to all its expressions.
    #[must_use]
    pub fn map_exprs(&self, mut f: impl FnMut(&Expr) -> Expr) -> AggCall {
        AggCall {
            sig: self.sig.clone(),
            args: self.args.iter().map(&mut f).collect(),
            distinct: self.distinct,
            filter: self.filter.as_ref().map(&mut f),
            order_by: self.order_by.iter().map(|k| SortKey { expr: f(&k.expr), ..k.clone() }).collect(),
            within_group: self.within_group,
        }
    }

    /// Whether the arguments are among the keys of the call's ORDER BY. The order of rows with equal keys
    /// then does not affect the value.
    pub(crate) fn is_ordered_by_itself(&self) -> bool {
        let key = |e: &Expr| self.order_by.iter().any(|k| k.expr == *e);
        self.args.iter().all(|e| e.as_literal().is_some() || key(e))
    }

    /// Whether the value may be NULL. If `grouped`, only groups that have rows are considered; otherwise the
    /// case without rows is too.
    pub fn nullable(&self, grouped: bool, input: &crate::expr::Schema) -> bool {
        match facts(&self.sig).null {
            NullValue::Never => false,
            NullValue::WithoutValues => {
                !grouped || self.filter.is_some() || self.args.iter().any(|a| a.nullable(input))
            }
            NullValue::Unknown => true,
        }
    }
}

/// Makes the signature of an aggregate that is immutable and skips NULLs. `raises` says whether the aggregate
/// may raise an error.
fn aggregate(name: &str, args: Vec<Type>, ret: Type, raises: bool) -> FuncSig {
    FuncSig {
        schema: None,
        name: Arc::from(name),
        kind: crate::expr::FuncKind::Aggregate,
        args,
        ret,
        columns: Vec::new(),
        form: Vec::new(),
        volatility: crate::expr::Volatility::Immutable,
        strict: true,
        never_null: false,
        raises,
    }
}

/// Returns the condition `filter AND extra`, or only `extra` where there is no filter.
fn also(filter: &Option<Expr>, extra: Expr) -> Option<Expr> {
    Some(Expr::and(filter.iter().cloned().chain([extra])))
}
