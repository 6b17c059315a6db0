//! Rendering of WITH RECURSIVE.

use super::ast::{Cte, CteBody, FromItem, Query, Scalar, Select, SelectItem, SetExpr, SetOperator};
use super::condition::Condition;
use super::expr::scalar;
use super::fragment::{Block, Fragment, Names, Weight};
use super::joins::Lookup;
use super::render::RenderContext;
use super::tidy::tidy;
use crate::error::{Error, Result};
use crate::expr::Expr;
use crate::graph::{NodeId, Schema};
use crate::ident::{Ident, Qualified};
use crate::rel::{Fixpoint, Recursion};
use crate::types::Type;

/// The known rows, which a recursion leaves out. Also the forgotten rows, which the recursion returns even if
/// they are known.
struct KnownRows {
    known: (Block, NodeId),
    forgotten: (Block, NodeId),
}

impl RenderContext<'_> {
    /// Renders `WITH RECURSIVE r AS (base UNION [ALL] SELECT exprs FROM r, side WHERE on)`, and returns a
    /// block that reads `r`. PostgreSQL requires that the query of the step names `r` only once. The step's
    /// condition is therefore not split into patterns, since each pattern would be an arm of a UNION ALL that
    /// names `r`.
    pub(crate) fn recursion(&mut self, rec: &Recursion, inputs: Vec<Fragment>) -> Result<Block> {
        let mut inputs = inputs.into_iter();
        let mut next = |cx: &mut Self, of: NodeId| {
            let input = inputs.next().ok_or_else(|| Error::internal("a recursion without its inputs"))?;
            Ok::<Block, Error>(cx.open(input, of))
        };
        let (mut base, mut side) = (next(self, rec.base())?, next(self, rec.side())?);
        if rec.fixpoint() == Fixpoint::Distinct {
            (base.weight, side.weight) = (Weight::one(), Weight::one());
        }
        // If a condition on the rows of the side contains a subquery, the condition is tested before these
        // rows are joined.
        let query = |f: &Scalar| matches!(f, Scalar::Exists { .. } | Scalar::InQuery { .. });
        if side.filter.iter().any(query) {
            side = self.enclosed(side, rec.side());
        }
        let known = match rec.known() {
            Some((k, f)) => {
                let (known, forgotten) = (next(self, k)?, next(self, f)?);
                let (known, forgotten) = (self.shareable(known, k), self.shareable(forgotten, f));
                Some(KnownRows { known: (known, k), forgotten: (forgotten, f) })
            }
            None => None,
        };
        let name = self.fresh_cte();
        let names = self.output();
        let alias = self.alias_like(&name);
        let weighted = !(base.weight.is_one() && side.weight.is_one());
        let mut round = FromItem::relation(Qualified::bare(name.clone()), alias.clone());
        if self.graph().props(rec.base()).reads_delta {
            round = small(&names, weighted, round, &alias);
        }
        let mut step = Block::reading(round, &alias, &names.columns);
        if weighted {
            step.weight = Weight::of(Scalar::column(&alias, &names.weight));
        }
        let mut step = step.join(side);
        step.filter.push(scalar(&rec.step().on, &step.columns));
        step.columns = rec.step().exprs.iter().map(|e| scalar(e, &step.columns)).collect();
        let arms = [base, step].map(|arm| self.arm(arm, &names, weighted, known.as_ref()));
        let [left, right] = arms.map(Box::new);
        let all = rec.fixpoint() == Fixpoint::All;
        let body = Query::new(SetExpr::SetOp { op: SetOperator::Union, all, left, right });
        self.push_cte(Cte {
            name: name.clone(),
            columns: Vec::new(),
            materialized: None,
            body: CteBody::Recursive(body),
        });
        let alias = self.alias_like(&name);
        let item = FromItem::relation(Qualified::bare(name), alias.clone());
        let mut block = Block::reading(item, &alias, &names.columns);
        if weighted {
            block.weight = Weight::of(Scalar::column(&alias, &names.weight));
        }
        Ok(block)
    }

    /// Renders an arm of the UNION. The arm's columns get exactly the types that the columns of both arms
    /// must have.
    fn arm(&mut self, mut arm: Block, names: &Names, weighted: bool, known: Option<&KnownRows>) -> SetExpr {
        let schema = self.schema();
        if let Some(known) = known {
            let new = self.unknown(&arm.columns, schema, known);
            arm.filter.extend(new);
        }
        arm.filter.retain(|f| *f != Scalar::bool(true));
        let columns = std::mem::take(&mut arm.columns);
        arm.columns = columns.into_iter().zip(schema.columns()).map(|(e, c)| pinned(e, &c.ty)).collect();
        let mut set = arm.under(names, weighted);
        tidy(&mut set);
        set
    }

    /// Returns conditions that together say that a row is not known, or is known and forgotten. Each pattern
    /// of NULLs in the columns has a separate condition, so that a lookup can test each condition.
    fn unknown(&mut self, row: &[Scalar], schema: &Schema, known: &KnownRows) -> Vec<Scalar> {
        let (k, f) = (self.graph().schema(known.known.1), self.graph().schema(known.forgotten.1));
        let (outer, inner) = (same(schema, k), same(k, f));
        let forgotten = &known.forgotten.0;
        let present = [k, f].iter().all(|s| s.columns().iter().all(|c| !c.nullable));
        self.no_partner(row, &known.known.0, &outer, Lookup::ByRow, |cx, columns| {
            if present {
                return vec![cx.not_hashed(columns, forgotten)];
            }
            cx.no_partner(columns, forgotten, &inner, Lookup::AsPlanned, |_, _| Vec::new())
        })
    }

    /// Returns the condition that a row equals no row of `right`. PostgreSQL tests the condition with a hash
    /// table over all columns of `right`; these columns must not contain NULL. Any other condition could be
    /// slow: PostgreSQL cannot know how many rows a recursion returns. If it expected few rows, it would
    /// compare each row with each row of `right`.
    pub(crate) fn not_hashed(&mut self, row: &[Scalar], right: &Block) -> Scalar {
        let right = self.copy_block(right);
        let columns = right.columns.clone();
        let items = columns.into_iter().map(|expr| SelectItem { expr, name: None }).collect();
        let query = Box::new(Query::select(right.select(items)));
        Scalar::InQuery { args: row.to_vec(), query, negated: true }
    }
}

/// Makes PostgreSQL expect as many rows in a round as the base has. Otherwise it would expect ten times as
/// many. The rows get a limit that is never reached and whose value the planner does not know. For the few
/// rows of a change, PostgreSQL then looks up partners in an index, if there is one. It does not hash the
/// whole side.
fn small(names: &Names, weighted: bool, round: FromItem, alias: &Ident) -> FromItem {
    let columns = names.columns.iter().chain(weighted.then_some(&names.weight));
    let items = columns.map(|c| SelectItem::new(Scalar::column(alias, c), c.clone())).collect();
    let most = Scalar::int8(i64::MAX);
    let most = Select { items: vec![SelectItem { expr: most, name: None }], ..Select::default() };
    let mut query = Query::select(Select { items, from: vec![round], ..Select::default() });
    query.limit = Some(Scalar::Subquery(Box::new(Query::select(most))));
    FromItem::Subquery { query: Box::new(query), alias: alias.clone(), columns: Vec::new(), lateral: false }
}

/// Returns the condition that two whole rows are equal. NULL is equal to NULL.
fn same(left: &Schema, right: &Schema) -> Condition {
    let pairs = (0..left.len()).map(|i| left.expr(i).same_as(right.expr(i).shifted(left.len())));
    Condition::new(&Expr::and(pairs), left, right)
}

/// Casts a value to its type with the type's modifier, since PostgreSQL does not derive the modifier of every
/// expression.
fn pinned(value: Scalar, ty: &Type) -> Scalar {
    let modified = matches!(
        ty.element().unwrap_or(ty),
        Type::Numeric(_) | Type::Varchar(_) | Type::Bpchar(_) | Type::Other(_) | Type::Text
    );
    match &value {
        Scalar::Cast(_, to) if to == ty => value,
        _ if modified => value.cast(ty.clone()),
        _ => value,
    }
}
