//! The rendering of a graph as a syntax tree, and the context in which operators are rendered.

mod context;

use super::ast::{Cte, Query, SetExpr};
use super::fragment::{Body, Closed, Fragment, Names};
use super::naming::Naming;
use super::profile::Profile;
use super::sources::Sources;
use crate::error::{Error, Result};
use crate::graph::{Graph, NodeId, NodeMap, Schema};
use crate::ident::{Ident, NameSet};
use crate::rel::{Rel, Revise};
use std::sync::Arc;

/// The rendering of an operator as SQL.
pub trait Render {
    /// Renders the operator. `inputs` are its rendered inputs, in the order in which the operator names them.
    ///
    /// # Errors
    /// Fails if an input is not positive although the operator needs positive weights. Fails too if the
    /// context does not know a source.
    fn render(&self, inputs: Vec<Fragment>, cx: &mut RenderContext<'_>) -> Result<Fragment>;
}

/// Renders the plan under `root` as a query. The plan must denote a state, and the query returns each row as
/// often as the row's weight. The output columns of the query have the names `output`.
///
/// # Errors
/// Errors of the operators. An error if the plan denotes a change, or if the number of names is not the
/// number of columns.
pub fn render_query(
    graph: &Graph,
    root: NodeId,
    sources: &dyn Sources,
    profile: &Profile,
    output: &[Arc<str>],
) -> Result<Query> {
    if !graph.props(root).non_negative {
        return Err(Error::plan("a change has no plain rows: render it with its weights"));
    }
    let (mut cx, fragment) = render_one(graph, root, sources, profile)?;
    let names = output_names(graph, root, output)?;
    let fragment = if fragment.positive { fragment } else { cx.consolidate(fragment, root) };
    let closed = match fragment.body {
        Body::Closed(closed) if !closed.weighted => {
            Closed { set: rename(closed.set, &names, closed.weighted), names, ..closed }
        }
        body => {
            let block = cx.open(Fragment { body, positive: true, consolidated: false }, root);
            cx.unit(block, root).close(names, false)
        }
    };
    Ok(cx.finish(closed))
}

/// Renders the plan under `root` as a query that returns weighted rows. The output columns of the query have
/// the names `output`. A last column is the weight, a `bigint`. Its name is `w`, or another name if `w` is
/// one of `output`.
///
/// # Errors
/// Errors of the operators. An error if the number of names is not the number of columns.
pub fn render_delta(
    graph: &Graph,
    root: NodeId,
    sources: &dyn Sources,
    profile: &Profile,
    output: &[Arc<str>],
) -> Result<Query> {
    let (mut cx, fragment) = render_one(graph, root, sources, profile)?;
    let names = output_names(graph, root, output)?;
    let closed = match fragment.body {
        Body::Closed(closed) if closed.weighted => {
            Closed { set: rename(closed.set, &names, closed.weighted), names, ..closed }
        }
        _ => cx.open(fragment, root).close(names, true),
    };
    Ok(cx.finish(closed))
}

/// A common table expression, with its columns in the order of the plan's columns.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Named {
    /// The name of the common table expression.
    pub(crate) relation: Ident,
    /// The names of the columns, in the order of the plan's columns.
    pub(crate) columns: Vec<Ident>,
}

/// A change, as it was rendered.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Rendered {
    /// The change as weighted rows.
    Rows {
        /// The common table expression with the rows.
        rows: Named,
        /// The column of the rows' weights, of type `bigint`.
        weight: Ident,
    },
    /// The change as pairs of an old and a new row, with each pair once.
    Pairs {
        /// The common table expression with the input of the revision.
        input: Named,
        /// The schema of the input.
        schema: Schema,
        /// The revision, which makes the pairs from rows of the input.
        revise: Revise,
    },
}

/// Several changes, rendered as common table expressions of one statement.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Changed {
    /// The common table expressions. Each comes after those that it reads.
    pub(crate) ctes: Vec<Cte>,
    /// The rendered change of each root, in the order of the roots.
    pub(crate) roots: Vec<Rendered>,
}

/// Renders several changes as common table expressions of one statement. Parts that several changes share are
/// computed once. Given the position of a root and its revision, `in_pairs` returns whether the change is to
/// be rendered as pairs of an old and a new row.
///
/// # Errors
/// Errors of the operators.
pub(crate) fn render_changes(
    graph: &Graph,
    roots: &[NodeId],
    in_pairs: &dyn Fn(usize, &Revise) -> bool,
    sources: &dyn Sources,
    profile: &Profile,
) -> Result<Changed> {
    let pairs = |(i, root): (usize, &NodeId)| match graph.rel(*root) {
        Rel::Revise(r) if in_pairs(i, r) => Some(r),
        _ => None,
    };
    let pairs: Vec<Option<&Revise>> = roots.iter().enumerate().map(pairs).collect();
    let nodes: Vec<NodeId> =
        roots.iter().zip(&pairs).map(|(root, p)| p.map_or(*root, Revise::input)).collect();
    let (mut cx, fragments) = render(graph, &nodes, sources, profile)?;
    let mut changes = Vec::new();
    for ((node, fragment), pairs) in nodes.iter().zip(fragments).zip(pairs) {
        let block = cx.open(fragment, *node);
        changes.push(match pairs {
            Some(_) if !block.weight.is_one() => {
                return Err(Error::internal("what rows were and are is there more than once"));
            }
            Some(revise) => Rendered::Pairs {
                input: cx.relation(block, *node, false).0,
                schema: graph.schema(*node).clone(),
                revise: revise.clone(),
            },
            None => {
                let (rows, weight) = cx.relation(block, *node, true);
                Rendered::Rows { rows, weight }
            }
        });
    }
    Ok(Changed { ctes: cx.ctes, roots: changes })
}

/// Renders several plans, each of which denotes a state, as common table expressions of one statement. Each
/// row occurs as often as its weight. Parts that the plans share are computed once.
///
/// # Errors
/// Errors of the operators.
pub(crate) fn render_states(
    graph: &Graph,
    roots: &[NodeId],
    sources: &dyn Sources,
    profile: &Profile,
) -> Result<(Vec<Cte>, Vec<Named>)> {
    let (mut cx, fragments) = render(graph, roots, sources, profile)?;
    let mut named = Vec::new();
    for (root, fragment) in roots.iter().zip(fragments) {
        let block = cx.open(fragment, *root);
        let block = cx.unit(block, *root);
        named.push(cx.relation(block, *root, false).0);
    }
    Ok((cx.ctes, named))
}

fn render_one<'a>(
    graph: &'a Graph,
    root: NodeId,
    sources: &'a dyn Sources,
    profile: &'a Profile,
) -> Result<(RenderContext<'a>, Fragment)> {
    let (cx, mut fragments) = render(graph, &[root], sources, profile)?;
    let fragment = fragments.pop().ok_or_else(|| Error::internal("a plan without a root"))?;
    Ok((cx, fragment))
}

fn output_names(graph: &Graph, root: NodeId, output: &[Arc<str>]) -> Result<Names> {
    if output.len() != graph.schema(root).len() {
        return Err(Error::plan(format!(
            "{} output names for {} columns",
            output.len(),
            graph.schema(root).len()
        )));
    }
    Ok(Names::given(output.iter().map(Ident::new).collect()))
}

fn render<'a>(
    graph: &'a Graph,
    roots: &[NodeId],
    sources: &'a dyn Sources,
    profile: &'a Profile,
) -> Result<(RenderContext<'a>, Vec<Fragment>)> {
    let nodes = graph.reachable_from(roots);
    let mut readers: NodeMap<usize> = NodeMap::new();
    for id in nodes.iter().flat_map(|id| graph.inputs(*id)).chain(roots) {
        *readers.entry(*id) += 1;
    }
    let shared = |id: NodeId| readers.get(id).is_some_and(|n| n > 1);
    let mut cx = RenderContext {
        graph,
        node: roots.first().copied().ok_or_else(|| Error::internal("nothing to render"))?,
        sources,
        profile,
        naming: Naming::new(graph, &nodes),
        ctes: Vec::new(),
        cte_names: NameSet::new(),
        aliases: NameSet::new(),
    };
    let mut done: NodeMap<Fragment> = NodeMap::new();
    for id in nodes {
        let node = graph.node(id);
        let mut inputs = Vec::new();
        for input in node.inputs() {
            let found =
                if shared(*input) { done.get_ref(*input).map(|f| cx.copy(f)) } else { done.remove(*input) };
            inputs.push(found.ok_or_else(|| Error::internal("an operator came before its input"))?);
        }
        cx.node = id;
        let mut fragment = node.op().render(inputs, &mut cx)?;
        let props = node.props();
        // An empty relation is positive and consolidated, whatever SQL renders it.
        fragment.positive |= props.empty;
        fragment.consolidated |= props.empty;
        if (props.positive && !fragment.positive) || (props.consolidated && !fragment.consolidated) {
            let name = node.op().name();
            return Err(Error::plan(format!("{name} is rendered with less than its plan promises")));
        }
        if shared(id) {
            fragment = cx.shared(fragment, id);
        }
        done.insert(id, fragment);
    }
    let mut fragments = Vec::new();
    for root in roots {
        let fragment = done.get_ref(*root).ok_or_else(|| Error::internal("a plan without a root"))?;
        fragments.push(cx.copy(fragment));
    }
    Ok((cx, fragments))
}

/// The context in which operators are rendered.
pub struct RenderContext<'a> {
    graph: &'a Graph,
    node: NodeId,
    sources: &'a dyn Sources,
    profile: &'a Profile,
    naming: Naming<'a>,
    ctes: Vec<Cte>,
    cte_names: NameSet,
    aliases: NameSet,
}

/// Returns the query with other names for its output columns.
pub(in crate::sql) fn rename(set: SetExpr, names: &Names, weighted: bool) -> SetExpr {
    match set {
        SetExpr::Select(mut select) => {
            let weight = weighted.then_some(&names.weight);
            for (item, name) in select.items.iter_mut().zip(names.columns.iter().chain(weight)) {
                item.name = Some(name.clone());
            }
            SetExpr::Select(select)
        }
        SetExpr::Values(_) => set,
        SetExpr::UnionAll(arms) => {
            SetExpr::UnionAll(arms.into_iter().map(|a| rename(a, names, weighted)).collect())
        }
        SetExpr::SetOp { op, all, left, right } => {
            SetExpr::SetOp { op, all, left: Box::new(rename(*left, names, weighted)), right }
        }
    }
}
