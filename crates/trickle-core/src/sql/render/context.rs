//! The context in which operators are rendered: it names relations, and opens and closes the blocks of a
//! statement.

use super::{Named, RenderContext};
use crate::error::{Error, Result};
use crate::expr::{Expr, Volatility};
use crate::graph::{Graph, NodeId, Schema};
use crate::ident::{Ident, Qualified};
use crate::sql::ast::{Cte, CteBody, FromItem, Query, Scalar, SetExpr, Visitor, walk_from, walk_scalar};
use crate::sql::fragment::{Block, Body, Closed, Fragment, Names, Weight};
use crate::sql::sources::Sources;
use std::sync::Arc;

impl<'a> RenderContext<'a> {
    /// Returns the graph that contains the plan.
    pub(crate) fn graph(&self) -> &'a Graph {
        self.graph
    }
    /// Returns the node that is being rendered.
    pub(crate) fn node(&self) -> NodeId {
        self.node
    }
    /// Returns the sources from which the leaves are read.
    pub(crate) fn sources(&self) -> &'a dyn Sources {
        self.sources
    }
    /// Returns the columns of the node that is being rendered.
    pub(crate) fn schema(&self) -> &'a Schema {
        self.graph.schema(self.node)
    }
    /// Returns column names for the node that is being rendered.
    pub(crate) fn output(&self) -> Names {
        Names::of(self.schema())
    }

    /// Returns an alias that occurs nowhere else in the statement.
    pub(crate) fn alias(&mut self, wanted: &str) -> Ident {
        self.aliases.fresh(wanted)
    }

    pub(crate) fn alias_like(&mut self, wanted: &Ident) -> Ident {
        self.aliases.fresh_like(wanted)
    }

    /// Adds a common table expression to the statement and returns its name.
    pub(crate) fn cte(&mut self, wanted: &Arc<str>, mut query: Query, materialized: Option<bool>) -> Ident {
        crate::sql::tidy::tidy(&mut query.body);
        let name = self.cte_names.fresh_like(&Ident::from(wanted));
        let materialized = materialized.filter(|_| self.profile.cte_materialized);
        self.ctes.push(Cte {
            name: name.clone(),
            columns: Vec::new(),
            materialized,
            body: CteBody::Query(query),
        });
        name
    }

    /// Returns an unused name for a common table expression that belongs to the node that is being rendered.
    pub(in crate::sql) fn fresh_cte(&mut self) -> Ident {
        let wanted = self.wanted(self.node);
        self.cte_names.fresh_like(&Ident::from(&wanted))
    }

    pub(in crate::sql) fn push_cte(&mut self, cte: Cte) {
        self.ctes.push(cte);
    }

    fn wanted(&self, of: NodeId) -> Arc<str> {
        self.naming.name(of)
    }

    /// Makes a common table expression from a block that computes the node `of`. Returns the common table
    /// expression, and a name for the weight column. The column exists only if `weighted`.
    pub(super) fn relation(&mut self, block: Block, of: NodeId, weighted: bool) -> (Named, Ident) {
        let names = Names::of(self.graph.schema(of));
        if let Some(named) = block.as_relation() {
            match block.weight.as_column() {
                Some(weight) if weighted => return (named, weight.clone()),
                _ if !weighted => return (named, names.weight),
                _ => {}
            }
        }
        let closed = block.close(names.clone(), weighted);
        let wanted = self.wanted(of);
        let relation = self.cte(&wanted, Query::new(closed.set), Some(true));
        (Named { relation, columns: names.columns }, names.weight)
    }

    /// Returns a block that reads a closed query through a common table expression. The expression is named
    /// after the node `of`.
    pub(in crate::sql) fn enclose(
        &mut self,
        closed: Closed,
        of: NodeId,
        materialized: Option<bool>,
    ) -> Block {
        let wanted = self.wanted(of);
        let name = self.cte(&wanted, Query::new(closed.set), materialized);
        let alias = self.alias_like(&name);
        let item = FromItem::relation(Qualified::bare(name), alias.clone());
        let mut block = Block::reading(item, &alias, &closed.names.columns);
        if closed.weighted {
            block.weight = Weight::of(Scalar::column(&alias, &closed.names.weight));
        }
        block
    }

    /// Returns the fragment as an open block. The fragment computes the node `of`. A closed query whose size
    /// the change bounds is computed once, in a common table expression. Without this, PostgreSQL would
    /// compute the query again for each outer row of a join, if it expects a change of one or two rows.
    pub(crate) fn open(&mut self, fragment: Fragment, of: NodeId) -> Block {
        match fragment.body {
            Body::Open(block) => block,
            Body::Closed(closed) => {
                let once = self.graph.props(of).bounded.then_some(true);
                self.enclose(closed, of, once)
            }
        }
    }

    /// Returns an equal block that only reads columns of one relation and has no conditions.
    pub(crate) fn enclosed(&mut self, block: Block, of: NodeId) -> Block {
        if block.is_bare() && block.filter.is_empty() {
            return block;
        }
        let weighted = !block.weight.is_one();
        let closed = block.close(Names::of(self.graph.schema(of)), weighted);
        self.enclose(closed, of, None)
    }

    /// Returns a block in which an expensive column that is read more than once is computed only once, in a
    /// common table expression. The expressions `readers` read columns. If `kept`, the result reads each
    /// column once too.
    pub(crate) fn fit<'e>(
        &mut self,
        block: Block,
        of: NodeId,
        readers: impl IntoIterator<Item = &'e Expr>,
        kept: bool,
    ) -> Block {
        let dear = |s: &Scalar| !s.is_atom() && size(s) > 8;
        if !block.columns.iter().any(dear) {
            return block;
        }
        let mut uses = vec![usize::from(kept); block.columns.len()];
        for e in readers {
            e.each_column(|c| {
                if let Some(n) = uses.get_mut(c) {
                    *n += 1;
                }
            });
        }
        if block.columns.iter().zip(&uses).any(|(s, n)| *n > 1 && dear(s)) {
            let weighted = !block.weight.is_one();
            let closed = block.close(Names::of(self.graph.schema(of)), weighted);
            return self.enclose(closed, of, None);
        }
        block
    }

    /// Returns the rows of the node `of` with weight 1. Each row is repeated as often as its former weight.
    /// All weights must be positive.
    #[must_use]
    pub(crate) fn unit(&mut self, mut block: Block, of: NodeId) -> Block {
        let props = self.graph.props(of);
        // Merged rows have one row for each key, so the row's weight is 1.
        if props.consolidated && props.non_negative && !props.keys.is_empty() {
            block.weight = Weight::one();
        }
        if block.weight.is_one() { block } else { self.repeated(block) }
    }

    /// Repeats each row as often as its weight. All weights must be positive. Most rows have weight 1, so the
    /// planner should expect few copies. The planner expects 1,000 rows from a series whose end is a column.
    /// It expects an equality of expressions over one row to hold for one row in 200. The planner therefore
    /// expects five copies.
    pub(in crate::sql) fn repeated(&mut self, mut block: Block) -> Block {
        let (alias, n) = (self.alias("copy"), Ident::fixed("n"));
        let call = Scalar::call("generate_series", vec![Scalar::int8(1), block.weight.scalar()]);
        let (number, same) =
            (Scalar::column(&alias, &n), Scalar::column(&alias, &n).op("*", Scalar::int8(1)));
        block.filter.push(number.equals(same));
        block.from.push(FromItem::call_naming(call, alias, vec![n]));
        block.weight = Weight::one();
        block
    }

    /// Returns the body as an open block. The body computes the node that is being rendered.
    pub(crate) fn opened(&mut self, body: Body) -> Block {
        let node = self.node;
        self.open(Fragment { body, positive: false, consolidated: false }, node)
    }

    /// Closes the fragment if one of the expressions `added` is volatile. Otherwise returns the fragment
    /// unchanged. An operator that extended the open block could compute a volatile expression more than once
    /// for each row.
    pub(crate) fn once_per_row<'e>(
        &mut self,
        added: impl IntoIterator<Item = &'e Expr>,
        fragment: Fragment,
    ) -> Fragment {
        let volatile = added.into_iter().any(|e| e.volatility() == Volatility::Volatile);
        match fragment.body {
            Body::Open(block) if volatile => {
                let weighted = !block.weight.is_one();
                Fragment { body: Body::Closed(block.close(self.output(), weighted)), ..fragment }
            }
            body => Fragment { body, ..fragment },
        }
    }

    /// Returns the inputs as an array. Fails unless there are exactly `N` inputs.
    pub(crate) fn arity<const N: usize>(&self, inputs: Vec<Fragment>) -> Result<[Fragment; N]> {
        let found = inputs.len();
        <[Fragment; N]>::try_from(inputs)
            .map_err(|_| Error::internal(format!("{found} rendered inputs where there are {N}")))
    }

    /// Returns [`Props::is_one_per_value`](crate::graph::Props::is_one_per_value) for an input.
    pub(crate) fn is_one_per_value(&self, input: NodeId) -> bool {
        self.graph.props(input).is_one_per_value(self.graph.schema(input))
    }

    /// Makes PostgreSQL compute the rows of the node `of` before it tests the conditions of the reading
    /// operator on these rows. Within one SELECT, PostgreSQL tests cheaper conditions first (manual, 4.2.14).
    /// Without this fence, a condition that raises an error could be tested on rows that another condition
    /// drops.
    pub(crate) fn fenced(&mut self, block: Block, of: NodeId) -> Block {
        let weighted = !block.weight.is_one();
        let closed = block.close(Names::of(self.graph.schema(of)), weighted);
        self.enclose(closed, of, Some(true))
    }

    /// Whether the plan states that the node that is being rendered has each row once.
    pub(crate) fn is_consolidated(&self) -> bool {
        self.graph.props(self.node).consolidated
    }

    /// Whether the plan states that the node that is being rendered denotes a state.
    pub(crate) fn is_state(&self) -> bool {
        self.graph.props(self.node).non_negative
    }

    /// Returns a block that can be read a second time through [`RenderContext::copy_block`]. A block is
    /// computed twice only if computing it costs nothing.
    pub(crate) fn shareable(&mut self, block: Block, of: NodeId) -> Block {
        let fragment = self.shared(Fragment::open(block, false, false), of);
        self.open(fragment, of)
    }

    /// Returns an equal fragment that several operators can read. A plain read of a relation is repeated for
    /// each reading operator. A query that reads a change is computed once. A query that reads only states
    /// stays visible to the planner, so that the planner may start from an index.
    pub(super) fn shared(&mut self, fragment: Fragment, of: NodeId) -> Fragment {
        let Fragment { body, positive, consolidated } = fragment;
        let (closed, flat) = match body {
            Body::Open(block) if block.is_plain() => {
                return Fragment::open(block, positive, consolidated);
            }
            Body::Open(block) => {
                let weighted = !block.weight.is_one();
                (block.close(Names::of(self.graph.schema(of)), weighted), true)
            }
            Body::Closed(closed) => {
                let flat = is_flat(&closed.set);
                (closed, flat)
            }
        };
        let inline = flat && !self.graph.props(of).reads_delta;
        let block = self.enclose(closed, of, inline.then_some(false));
        Fragment::open(block, positive, consolidated)
    }

    /// Returns a copy of the fragment with new aliases.
    pub(super) fn copy(&mut self, fragment: &Fragment) -> Fragment {
        match &fragment.body {
            Body::Open(block) => Fragment { body: Body::Open(self.copy_block(block)), ..*fragment },
            Body::Closed(_) => fragment.clone(),
        }
    }

    /// Returns a copy of the block with new aliases. A subquery may occur more than once in the block, so all
    /// occurrences of an alias get the same new name.
    pub(crate) fn copy_block(&mut self, block: &Block) -> Block {
        let mut copy = block.clone();
        // A block has only a few aliases, so a linear search is faster than hashing.
        let mut renamed: Vec<(Ident, Ident)> = Vec::new();
        let find = |renamed: &[(Ident, Ident)], a: &Ident| {
            renamed.iter().find(|(old, _)| old == a).map(|(_, new)| new.clone())
        };
        for item in &mut copy.from {
            let mut alias = |a: &mut Ident| {
                if find(&renamed, a).is_none() {
                    let new = match crate::sql::tidy::without_number(a.as_str()) {
                        same if same.len() == a.as_str().len() => self.aliases.fresh_like(a),
                        shorter => self.aliases.fresh(shorter),
                    };
                    renamed.push((a.clone(), new));
                }
            };
            walk_from(item, &mut Visitor { scalar: &mut |_| {}, alias: &mut alias });
        }
        let rename = |a: &mut Ident| {
            if let Some(new) = find(&renamed, a) {
                *a = new;
            }
        };
        let mut scalar = |s: &mut Scalar| s.table().into_iter().for_each(rename);
        let mut v = Visitor { scalar: &mut scalar, alias: &mut { rename } };
        copy.from.iter_mut().for_each(|f| walk_from(f, &mut v));
        copy.filter.iter_mut().chain(&mut copy.columns).for_each(|s| walk_scalar(s, &mut v));
        copy.weight.scalars_mut().for_each(|s| walk_scalar(s, &mut v));
        copy
    }

    pub(super) fn finish(self, closed: Closed) -> Query {
        let mut set = closed.set;
        if let (SetExpr::Select(select), true, false) =
            (&mut set, closed.names.columns.is_empty(), closed.weighted)
        {
            select.items.clear();
        }
        crate::sql::tidy::tidy(&mut set);
        Query { ctes: self.ctes, ..Query::new(set) }
    }
}

/// Whether the planner merges (pulls up) a query into the query that reads it.
fn is_flat(set: &SetExpr) -> bool {
    match set {
        SetExpr::Select(s) => {
            let windowed = s.items.iter().any(|i| matches!(i.expr, Scalar::Over(_)));
            !s.distinct && s.group_by.is_empty() && s.having.is_empty() && !windowed
        }
        SetExpr::UnionAll(arms) => arms.iter().all(is_flat),
        SetExpr::Values(_) | SetExpr::SetOp { .. } => false,
    }
}

/// Returns the number of nodes in an expression.
fn size(s: &Scalar) -> usize {
    let mut n = 0;
    let mut copy = s.clone();
    walk_scalar(&mut copy, &mut Visitor { scalar: &mut |_| n += 1, alias: &mut |_| {} });
    n
}
