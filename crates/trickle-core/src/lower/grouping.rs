//! Lowers GROUP BY: its keys and its grouping sets.

use super::clause::ClauseContext;
use super::select::Output;
use super::slot::Slot;
use super::{Level, Lowerer};
use crate::error::{Error, Result};
use crate::expr::{Expr, Volatility};
use crate::graph::NodeId;
use crate::rel::SetCall;
use crate::syntax::{Call, Expr as Ast, GroupBy, GroupSets, Ident, Literal, Node, Select};
use crate::types::Type;
use crate::verdict::ReasonKind;
use std::collections::BTreeSet;
use std::sync::Arc;

/// PostgreSQL's limit for the number of grouping sets.
const MAX_SETS: usize = 4_096;
/// PostgreSQL's limit for the number of elements of CUBE.
const MAX_CUBE: usize = 12;
/// PostgreSQL's limit for the number of arguments of GROUPING.
const MAX_ARGUMENTS: usize = 31;

/// The greatest number of grouping sets that are maintained. Each set is an aggregate with a separate stored
/// result, and one statement brings all these results up to date.
const MAX_MAINTAINED: usize = 64;

/// The clause GROUP BY, as it is written.
pub(super) struct Clause<'q> {
    /// The keys as they are written; a key may occur several times.
    keys: Vec<&'q Ast>,
    /// The grouping sets, each as positions in `keys`. Without GROUP BY there is one set without keys, as
    /// with `GROUP BY ()`.
    sets: Vec<Vec<usize>>,
    absent: bool,
    /// Whether equal sets count once, as in `GROUP BY DISTINCT`.
    distinct: bool,
}

/// The keys of GROUP BY and its grouping sets.
pub(super) struct Keys {
    pub(super) keys: Vec<Expr>,
    /// The grouping sets, each as positions in `keys`.
    pub(super) sets: Vec<BTreeSet<usize>>,
}

impl Keys {
    /// Returns the keys that are in every grouping set.
    pub(super) fn common(&self) -> impl Iterator<Item = &Expr> {
        let everywhere = |i: &usize| self.sets.iter().all(|s| s.contains(i));
        (0..self.keys.len()).filter(everywhere).map(|i| &self.keys[i])
    }
}

/// A call of GROUPING. The lowered clause has a placeholder for the value of the call.
#[derive(Clone)]
pub(super) struct GroupingCall<'q> {
    args: Vec<Expr>,
    place: &'q Ast,
}

impl<'q> Clause<'q> {
    /// Whether there is no GROUP BY.
    pub(super) fn is_absent(&self) -> bool {
        self.absent
    }

    /// Returns the grouping sets of an item.
    fn expand(&mut self, item: &'q GroupSets) -> Result<Vec<Vec<usize>>> {
        Ok(match item {
            GroupSets::Set(keys) => vec![self.places(keys)],
            GroupSets::Sets(items) => {
                let mut all = Vec::new();
                for item in items {
                    all.extend(self.expand(item)?);
                    few(all.len())?;
                }
                all
            }
            GroupSets::Rollup(parts) => {
                let parts: Vec<Vec<usize>> = parts.iter().map(|p| self.places(p)).collect();
                few(parts.len() + 1)?;
                (0..=parts.len()).rev().map(|n| parts[..n].concat()).collect()
            }
            GroupSets::Cube(parts) => {
                if parts.len() > MAX_CUBE {
                    return Err(Error::too_many("54011", format!("CUBE is limited to {MAX_CUBE} elements")));
                }
                let parts: Vec<Vec<usize>> = parts.iter().map(|p| self.places(p)).collect();
                let last = parts.len().saturating_sub(1);
                let chosen = |n: usize| (0..parts.len()).filter(move |i| n >> (last - i) & 1 == 1);
                let set = |n: usize| chosen(n).flat_map(|i| &parts[i]).copied().collect();
                (0..1 << parts.len()).rev().map(set).collect()
            }
        })
    }

    fn places(&mut self, keys: &'q [Ast]) -> Vec<usize> {
        let first = self.keys.len();
        self.keys.extend(keys);
        (first..self.keys.len()).collect()
    }
}

/// Fails where there are more sets than PostgreSQL allows.
fn few(sets: usize) -> Result<()> {
    if sets > MAX_SETS {
        return Err(Error::too_complex(format!("too many grouping sets present (maximum {MAX_SETS})")));
    }
    Ok(())
}

impl Lowerer<'_> {
    /// Returns GROUP BY with its grouping sets. The clause has one set for each combination of the sets of
    /// its items.
    pub(super) fn clause<'q>(&mut self, s: &'q Select) -> Result<Clause<'q>> {
        let GroupBy { distinct, items } = &s.group_by;
        let (absent, distinct) = (s.group_by.is_absent(), *distinct);
        let mut clause = Clause { keys: Vec::new(), sets: vec![Vec::new()], absent, distinct };
        for item in items {
            let expanded = clause.expand(&item.sets);
            let more = self.located(expanded, item)?;
            let checked = few(clause.sets.len() * more.len());
            self.located(checked, item)?;
            let beside = |a: &Vec<usize>| more.iter().map(|b| [&a[..], b].concat()).collect::<Vec<_>>();
            clause.sets = clause.sets.iter().flat_map(beside).collect();
        }
        Ok(clause)
    }

    /// Returns the outputs to which keys of GROUP BY refer by position, by alias, or by the same expression.
    pub(super) fn key_outputs(
        &self,
        clause: &Clause<'_>,
        outputs: &[Output<'_>],
        names: &[Arc<str>],
    ) -> Vec<usize> {
        let output = |item: &&Ast| match &item.bare().node {
            Node::Literal(Literal::Number(n)) => n.parse::<usize>().ok()?.checked_sub(1),
            Node::Literal(_) => None,
            Node::Name(parts) if parts.len() == 1 => self.output_alias(parts, outputs, names),
            _ => same_output(item.bare(), outputs),
        };
        clause.keys.iter().filter_map(output).collect()
    }

    /// Lowers the keys, over the rows before grouping; `exprs` is the lowered select list. The set-returning
    /// calls in the keys are appended to `calls`.
    pub(super) fn keys(
        &mut self,
        s: &Select,
        clause: &Clause<'_>,
        mut node: NodeId,
        (outputs, names): (&[Output<'_>], &[Arc<str>]),
        exprs: &[Expr],
        calls: &mut Vec<SetCall>,
    ) -> Result<(NodeId, Keys)> {
        let mut keys: Vec<Expr> = Vec::new();
        let mut places = Vec::new();
        for item in &clause.keys {
            let key = match self.key_output(item, outputs, names)? {
                Some(output) => self.no_aggregate(&exprs[output], item)?,
                None => {
                    let mut inner = ClauseContext::sets("GROUP BY");
                    inner.sets = std::mem::take(calls);
                    let lowered = self.expr(item, &mut inner)?;
                    *calls = std::mem::take(&mut inner.sets);
                    let (settled, mut one) = self.settle(node, vec![lowered], inner)?;
                    node = settled;
                    one.pop().unwrap_or_else(|| Expr::null(Type::Text))
                }
            };
            let key = self.typed(key)?;
            if !key.ty().has_equality() {
                return Err(self.without_equality(key.ty(), "A GROUP BY key", s));
            }
            let place = keys.iter().position(|k| *k == key).unwrap_or_else(|| {
                keys.push(key);
                keys.len() - 1
            });
            places.push(place);
        }
        let mut sets: Vec<BTreeSet<usize>> = Vec::new();
        for set in &clause.sets {
            let set = set.iter().map(|i| places[*i]).collect();
            if !(clause.distinct && sets.contains(&set)) {
                sets.push(set);
            }
        }
        let keys = Keys { keys, sets };
        self.kept(s, clause, &keys)?;
        let several = |k: usize| places.iter().filter(|place| **place == k).count() > 1;
        let shown = |k: usize| exprs.iter().filter(|e| **e == keys.keys[k]).count() > 1;
        // If a column occurs twice in the select list, PostgreSQL may count it as two keys, one for each
        // place. The text that PostgreSQL prints for the query does not reveal how many keys PostgreSQL
        // counts.
        if clause.sets.len() > 1 && (0..keys.keys.len()).any(|k| several(k) && shown(k)) {
            return Err(self.stop(s, "a column that is shown twice and is several keys of grouping sets"));
        }
        Ok((node, keys))
    }

    /// Stops lowering at grouping sets that a stream table cannot maintain.
    fn kept(&mut self, s: &Select, clause: &Clause<'_>, keys: &Keys) -> Result<()> {
        let place = |i: usize| clause.keys.get(i).copied();
        if keys.sets.len() > MAX_MAINTAINED {
            let construct = format!("grouping by {} sets", keys.sets.len());
            let help = format!("Group by at most {MAX_MAINTAINED} sets, or refresh the table in full.");
            match place(0) {
                Some(at) => self.reason(ReasonKind::NotYet, at, construct, &help),
                None => self.reason(ReasonKind::NotYet, s, construct, &help),
            }
            return Err(Error::internal("lowering stopped at too many grouping sets"));
        }
        let common: Vec<&Expr> = keys.common().collect();
        // If a key is a constant, PostgreSQL treats some equal constants in the select list as the key, but
        // not all.
        let constant = |k: &&Expr| k.is_constant() && k.volatility() == Volatility::Immutable;
        if !self.probing() && keys.keys.iter().any(|k| constant(&k) && !common.contains(&k)) {
            return Err(self.stop(s, "a constant as key of some grouping sets"));
        }
        Ok(())
    }

    /// Returns the output that a key names: by position, by an alias that is not also a column of FROM, or by
    /// the same expression.
    fn key_output(
        &mut self,
        item: &Ast,
        outputs: &[Output<'_>],
        names: &[Arc<str>],
    ) -> Result<Option<usize>> {
        match &item.bare().node {
            Node::Literal(Literal::Number(n)) => {
                let found = n.parse::<usize>().ok().filter(|n| *n >= 1 && *n <= outputs.len());
                let missing = || {
                    let e = Error::invalid_reference(format!("GROUP BY position {n} is not in select list"));
                    self.at(e, item)
                };
                found.map(|n| Some(n - 1)).ok_or_else(missing)
            }
            Node::Literal(_) => Err(self.at(Error::syntax("non-integer constant in GROUP BY"), item)),
            Node::Name(parts) if parts.len() == 1 => Ok(self.output_alias(parts, outputs, names)),
            _ => Ok(same_output(item.bare(), outputs)),
        }
    }

    /// Returns the output with that name. Returns `None` if the name has a qualifier, or if it is also the
    /// name of a column of FROM.
    fn output_alias(&self, name: &[Ident], outputs: &[Output<'_>], names: &[Arc<str>]) -> Option<usize> {
        let [name] = name else { return None };
        let folded = name.folded();
        let input = self.frames.last().is_some_and(|f| f.scope.star.iter().any(|n| *n.name == *folded));
        if input {
            return None;
        }
        debug_assert_eq!(outputs.len(), names.len());
        names.iter().position(|n| **n == *folded)
    }

    fn no_aggregate(&mut self, e: &Expr, place: &Ast) -> Result<Expr> {
        let has = |held: fn(Slot) -> bool| e.columns().iter().any(|c| held(Slot::of(*c)));
        if has(|s| matches!(s, Slot::Subquery(_))) {
            return Err(self.stop(place, "GROUP BY a subquery of the select list"));
        }
        let refused = if has(|s| matches!(s, Slot::Aggregate(_))) {
            Error::grouping("aggregate functions are not allowed in GROUP BY")
        } else if has(|s| matches!(s, Slot::Grouping(_))) {
            Error::grouping("grouping operations are not allowed in GROUP BY")
        } else if has(|s| matches!(s, Slot::Window(_))) {
            Error::windowing("window functions are not allowed in GROUP BY")
        } else {
            return Ok(e.clone());
        };
        Err(self.at(refused, place))
    }

    /// Lowers `GROUPING(a, b)` to a placeholder for a number with one bit for each argument. The last
    /// argument has the lowest bit. In a row whose grouping set does not contain an argument, the argument's
    /// bit is set.
    pub(super) fn grouping<'q>(
        &mut self,
        f: &Call,
        list: Vec<&'q Ast>,
        e: &'q Ast,
        cx: &mut ClauseContext<'q>,
    ) -> Result<Expr> {
        if cx.inside_aggregate {
            return Err(self.at(Error::grouping("aggregate function calls cannot be nested"), e));
        }
        if !cx.allows_aggregates {
            let m = format!("grouping operations are not allowed in {}", cx.clause);
            return Err(self.at(Error::grouping(m), e));
        }
        if list.is_empty() || f.filter.is_some() || f.over.is_some() {
            return Err(self.at(Error::syntax("GROUPING takes grouping expressions and nothing else"), e));
        }
        if list.len() > MAX_ARGUMENTS {
            return Err(self.at(Error::too_many("54023", "GROUPING must have fewer than 32 arguments"), e));
        }
        let frame = self.frames.len().saturating_sub(1);
        self.levels.push(Level { frame, read: None });
        let args = self.exprs(list, cx);
        let level = self.levels.pop();
        let args = args?;
        if level.and_then(|l| l.read).is_some_and(|read| read < frame) {
            return Err(self.stop(e, "GROUPING() of columns of an enclosing query"));
        }
        cx.groupings.push(GroupingCall { args, place: e });
        Ok(Slot::Grouping(cx.groupings.len() - 1).expr(Type::Int4))
    }

    /// Returns, for each call of GROUPING, the positions of the keys that are its arguments.
    pub(super) fn asked(&self, asked: &[GroupingCall<'_>], keys: &Keys) -> Result<Vec<Vec<usize>>> {
        let mut found = Vec::new();
        for call in asked {
            let place = |a: &Expr| {
                keys.keys.iter().position(|k| k == a).ok_or_else(|| {
                    let m =
                        "arguments to GROUPING must be grouping expressions of the associated query level";
                    self.at(Error::grouping(m), call.place)
                })
            };
            found.push(call.args.iter().map(place).collect::<Result<Vec<_>>>()?);
        }
        Ok(found)
    }
}

/// Returns the output that is written exactly as the key. If a key was given by position, PostgreSQL writes
/// the output's expression in place of the key when it prints the query. A subquery in such a key is the same
/// as the output's subquery.
fn same_output(item: &Ast, outputs: &[Output<'_>]) -> Option<usize> {
    outputs.iter().position(|o| matches!(o, Output::Text(text) if text.bare() == item))
}

/// Whether a key is written like an entry of the select list. A cast around a constant key is ignored, since
/// PostgreSQL adds the type to such a key when it prints a query.
pub(super) fn written_alike(entry: &Ast, key: &Ast) -> bool {
    let (entry, key) = (entry.bare(), key.bare());
    let constant = match &key.node {
        Node::Cast { operand, .. } => Some(operand.bare()).filter(|e| matches!(e.node, Node::Literal(_))),
        _ => None,
    };
    entry == key || constant == Some(entry)
}
