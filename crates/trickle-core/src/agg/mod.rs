//! Aggregates, one file per family; [`FAMILIES`] lists them.
//!
//! A family says how its aggregates are kept up to date ([`Upkeep`]), and computes their values over a group.

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
use std::sync::Arc;

/// All aggregate families. The first one that knows a name decides.
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
    /// The aggregate.
    pub sig: Arc<FuncSig>,
    /// Its arguments over the input's columns; none for `count(*)`.
    pub args: Vec<Expr>,
    /// `DISTINCT`.
    pub distinct: bool,
    /// The condition of `FILTER (WHERE …)`.
    pub filter: Option<Expr>,
    /// `ORDER BY` inside the call, or `WITHIN GROUP (ORDER BY …)`.
    pub order_by: Vec<SortKey>,
    /// Whether `order_by` is `WITHIN GROUP`.
    pub within_group: bool,
}

/// How the value of an aggregate is updated after a change of its group.
pub enum Upkeep {
    /// Accumulators are added up with weights; always exact.
    Linear(Linear),
    /// The value is the least or the greatest. A net insert extends it; a net delete of the stored value
    /// recomputes the group.
    Extremum {
        /// Whether it is `max` rather than `min`.
        greatest: bool,
    },
    /// The touched groups are recomputed.
    Rescan,
}

/// An accumulator: `Σ weight × value` over the rows of a group that pass the filter and whose value is not
/// NULL. The total is never NULL, and 0 where no row counts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Acc {
    /// The value that is added; `None` counts rows.
    pub value: Option<Expr>,
    /// The condition on the rows that count; `None` counts all.
    pub filter: Option<Expr>,
    /// The type of the total: `bigint` or `numeric`, wide enough that adding does not overflow in practice.
    pub ty: Type,
}

impl Acc {
    /// Counts the rows on which `filter` holds.
    pub fn count(filter: Option<Expr>) -> Acc {
        Acc { value: None, filter, ty: Type::Int8 }
    }
    /// Adds up `value`, an integer or numeric.
    pub fn sum(value: Expr, filter: Option<Expr>) -> Acc {
        let ty = match value.ty() {
            Type::Int2 | Type::Int4 => Type::Int8,
            _ => Type::Numeric(None),
        };
        Acc { value: Some(value), filter, ty }
    }
    /// Returns the total of no rows, with the scale that every total has, so that values that come and go
    /// leave no trace in it.
    pub fn zero(&self) -> Datum {
        match self.value.as_ref().and_then(Expr::fixed_scale) {
            Some(scale) if matches!(self.ty, Type::Numeric(_)) => {
                Datum::Numeric(Arc::new(Numeric::Finite { unscaled: 0.into(), scale }))
            }
            _ => Datum::Int(0),
        }
    }
    /// Returns the same total, without the parts of its filter that the columns of `input` decide.
    #[must_use]
    pub fn simplified(self, input: &crate::graph::Schema) -> Acc {
        let filter = self.filter.map(|f| f.simplified(input)).filter(|f| !f.conjuncts().is_empty());
        Acc { filter, ..self }
    }
    /// Adds up partial totals of this accumulator, found in column `index`.
    #[must_use]
    pub fn merge(&self, index: usize) -> Acc {
        Acc { value: Some(Expr::column(index, self.ty.clone())), filter: None, ty: self.ty.clone() }
    }
}

/// The linear form of an aggregate.
pub struct Linear {
    /// The accumulators.
    pub accs: Vec<Acc>,
    /// The aggregate's value from its accumulators, given as column expressions in the order of `accs`.
    pub finish: fn(&AggCall, &[Expr]) -> Expr,
}

/// Facts of the value of an aggregate, on which plans and comparisons of results rely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// When the value over a group that has rows is NULL.
    pub null: NullValue,
    /// How the value depends on the values of the arguments.
    pub value: ValueOf,
    /// How the value depends on the order of the rows, beyond the last bits of a sum of floats.
    pub order: OrderOf,
}

/// When the value of an aggregate over a group that has rows is NULL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NullValue {
    /// Never.
    Never,
    /// Where no argument has a value.
    WithoutValues,
    /// Not known.
    Unknown,
}

/// How the value of an aggregate depends on the values of its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueOf {
    /// It is a number of rows, or a sum or mean of all values.
    Total,
    /// It is one of the values.
    Pick,
    /// It is a list of the values.
    List,
    /// It is a list of the values as text.
    TextList,
    /// It holds the values as text, in another form than a list.
    Texts,
    /// It is another function of the values.
    Function,
    /// Not known: it may depend on how equal values are written.
    Unknown,
}

/// How the value of an aggregate depends on the order of the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderOf {
    /// It is the same for each order.
    Free,
    /// It may differ, and SQL leaves open which value it is.
    Open,
    /// It differs, and an ORDER BY says which value it is.
    Minded,
}

impl Facts {
    /// The facts of an aggregate that is none of PostgreSQL's own.
    pub const UNKNOWN: Facts =
        Facts { null: NullValue::Unknown, value: ValueOf::Unknown, order: OrderOf::Minded };

    /// The facts of an aggregate that is NULL only where no argument has a value, and is the same for each
    /// order.
    const fn of(value: ValueOf) -> Facts {
        Facts { null: NullValue::WithoutValues, value, order: OrderOf::Free }
    }
}

/// Returns the facts of an aggregate.
pub fn facts(sig: &FuncSig) -> Facts {
    match &sig.schema {
        None => family(sig).facts(&sig.name),
        Some(_) => Facts::UNKNOWN,
    }
}

/// A family of aggregates.
pub trait Family: Sync {
    /// Returns the names of its aggregates.
    fn names(&self) -> &'static [&'static str];

    /// Returns the signature of `name`, an aggregate of this family, for these argument types.
    fn signature(&self, name: &str, args: &[Type]) -> Option<FuncSig>;

    /// Whether a signature of one of PostgreSQL's own aggregates belongs to this family.
    fn knows(&self, sig: &FuncSig) -> bool {
        self.names().contains(&&*sig.name) && self.signature(&sig.name, &sig.args).is_some()
    }

    /// Returns the value over no rows, which a group has only where there is no GROUP BY; `None` where the
    /// value is not known.
    fn of_nothing(&self, _call: &AggCall) -> Option<Datum> {
        Some(Datum::Null)
    }

    /// Whether the evaluator replaces a call's value by a stand-in of the same type. Equal rows give equal
    /// stand-ins.
    fn is_opaque(&self, _call: &AggCall) -> bool {
        false
    }

    /// Returns the facts of the value of `name`, an aggregate of this family.
    fn facts(&self, name: &str) -> Facts;

    /// Returns how a call is kept up to date. Callers never ask for DISTINCT aggregates or for calls with
    /// volatile arguments.
    fn upkeep(&self, _call: &AggCall) -> Upkeep {
        Upkeep::Rescan
    }

    /// Returns the value over one group. `rows` holds the evaluated arguments of each input row that passed
    /// FILTER and DISTINCT, in the order of ORDER BY. For WITHIN GROUP, the sort keys stand behind the
    /// arguments. Weights are expanded.
    ///
    /// # Errors
    /// The errors that the aggregate raises, such as overflow; or an error where the evaluator does not know
    /// the aggregate.
    fn value(&self, call: &AggCall, rows: &[Vec<Datum>]) -> Result<Datum>;
}

/// Resolves a built-in aggregate by name and argument types.
pub fn resolve(name: &str, args: &[Type]) -> Option<Arc<FuncSig>> {
    let named = FAMILIES.iter().filter(|f| f.names().contains(&name));
    named.filter_map(|f| f.signature(name, args)).next().map(Arc::new)
}

/// Whether a built-in aggregate has this name, for any argument types.
pub fn is_aggregate(name: &str) -> bool {
    FAMILIES.iter().any(|f| f.names().contains(&name))
}

/// Resolves a built-in ordered-set aggregate by its name, the types of its arguments and the types of the
/// keys of WITHIN GROUP.
pub fn resolve_ordered(name: &str, args: &[Type], keys: &[Type]) -> Option<Arc<FuncSig>> {
    ordered::signature(name, args, keys).map(Arc::new)
}

/// Returns the family that knows an aggregate's signature.
pub fn family(sig: &FuncSig) -> &'static dyn Family {
    let known = FAMILIES.iter().find(|f| sig.schema.is_none() && f.knows(sig));
    known.copied().unwrap_or(&other::Other)
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

    /// Returns how this call is kept up to date.
    pub fn upkeep(&self) -> Upkeep {
        // min and max do not see duplicates, so DISTINCT says nothing there.
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

    /// Whether the aggregate is PostgreSQL's own `min` or `max`.
    pub(crate) fn is_extremum(&self) -> bool {
        self.sig.schema.is_none() && matches!(&*self.sig.name, "min" | "max")
    }

    /// Returns the expressions of whose equal values any one may be picked: the ones that DISTINCT, `min`,
    /// `max` and WITHIN GROUP compare.
    pub(crate) fn picked(&self) -> impl Iterator<Item = &Expr> {
        let counts = facts(&self.sig).null == NullValue::Never;
        let (args, keys) = match self.within_group {
            true => (false, true),
            false => (self.is_extremum() || (self.distinct && !counts), false),
        };
        let args = self.args.iter().filter(move |_| args);
        args.chain(self.order_by.iter().filter(move |_| keys).map(|k| &k.expr))
    }

    /// Returns the call with every expression rewritten.
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

    /// Whether its arguments are among the keys of its ORDER BY, so that the order of rows with equal keys
    /// does not matter.
    pub(crate) fn is_ordered_by_itself(&self) -> bool {
        let key = |e: &Expr| self.order_by.iter().any(|k| k.expr == *e);
        self.args.iter().all(|e| e.as_literal().is_some() || key(e))
    }

    /// Whether the result may be NULL for a group that has rows.
    pub fn nullable(&self, grouped: bool, input: &crate::graph::Schema) -> bool {
        match facts(&self.sig).null {
            NullValue::Never => false,
            NullValue::WithoutValues => {
                !grouped || self.filter.is_some() || self.args.iter().any(|a| a.nullable(input))
            }
            NullValue::Unknown => true,
        }
    }
}

/// Builds the signature of an aggregate that is immutable and skips NULLs; `raises` says whether it may
/// raise.
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

/// Returns `filter AND extra`.
fn also(filter: &Option<Expr>, extra: Expr) -> Option<Expr> {
    Some(Expr::and(filter.iter().cloned().chain([extra])))
}
