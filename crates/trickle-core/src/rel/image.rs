//! Grouping by keys whose equal values may have different images.
//!
//! For the key of a group, the result has the least of the images that occur in the group's rows. If the last
//! row with this image leaves, a count by key does not reveal that the image left. Rows are therefore
//! accumulated by the image of the key, which is exact. The few images of each touched group are then merged.

use super::{Accumulate, Map, Rel};
use crate::agg::Acc;
use crate::error::Result;
use crate::expr::Expr;
use crate::graph::{Graph, NodeId};

/// Returns the image of a column of `node`. Returns `None` where equal values of the column always have the
/// same image.
pub(crate) fn image(graph: &Graph, node: NodeId, column: usize) -> Option<Expr> {
    if let Rel::Map(m) = graph.rel(node)
        && m.exprs().get(column).is_some_and(Expr::is_exact)
    {
        return None;
    }
    graph.schema(node).expr(column).image()
}

/// Whether rows of `node` that agree on the columns `keys` have the same images in these columns. The images
/// are the same if each key column is exact, or if another key column is its image. [`accumulated`] makes
/// such an input.
pub(crate) fn identify(graph: &Graph, node: NodeId, keys: &[usize]) -> bool {
    let known = |image: &Expr| match graph.rel(node) {
        Rel::Map(m) => keys.iter().any(|k| m.exprs()[*k] == *image),
        _ => false,
    };
    keys.iter().all(|k| match (image(graph, node, *k), graph.rel(node)) {
        (None, _) => true,
        (Some(_), Rel::Map(m)) => m.exprs()[*k].image().is_some_and(|image| known(&image)),
        (Some(_), _) => false,
    })
}

/// Returns `accumulate keys; accs (R)`. The rows are first accumulated by the images of those keys whose
/// equal values may have different images.
pub(super) fn accumulated(
    graph: &mut Graph,
    input: NodeId,
    keys: &[usize],
    accs: Vec<Acc>,
) -> Result<NodeId> {
    let Some((imaged, wide)) = imaged(graph, input, keys)? else {
        return graph.add(Accumulate::new(input, keys.to_vec(), accs));
    };
    let by_image = Accumulate::new(imaged, wide.clone(), accs).with_any_key(graph);
    let merging = Accumulate::new(input, keys.to_vec(), by_image.accs().to_vec());
    let by_image = graph.add(by_image)?;
    let schema = graph.schema(by_image).clone();
    let kept: Vec<usize> = (0..keys.len()).chain(wide.len()..schema.len()).collect();
    let partial = graph.add(Map::columns(by_image, &schema, &kept))?;
    graph.add(merging.merging(partial))
}

/// Returns a relation that has each image of a row of R once. The relation is computed by counting the rows
/// of each image. The `δ` of this relation equals `δ R`. Returns `None` where equal rows of R always have the
/// same image.
pub(crate) fn distinct(graph: &mut Graph, input: NodeId) -> Result<Option<NodeId>> {
    let all: Vec<usize> = (0..graph.schema(input).len()).collect();
    let Some((imaged, wide)) = imaged(graph, input, &all)? else { return Ok(None) };
    let counted = graph.add(Accumulate::new(imaged, wide, vec![Acc::count(None)]).with_any_key(graph))?;
    let schema = graph.schema(counted).clone();
    graph.add(Map::columns(counted, &schema, &all)).map(Some)
}

/// Returns `input` with the images of `keys` as additional last columns, and the positions of `keys` and of
/// the images. Returns `None` where rows that agree on `keys` always have the same images.
fn imaged(graph: &mut Graph, input: NodeId, keys: &[usize]) -> Result<Option<(NodeId, Vec<usize>)>> {
    let images: Vec<Expr> = keys.iter().filter_map(|k| image(graph, input, *k)).collect();
    if images.is_empty() || identify(graph, input, keys) {
        return Ok(None);
    }
    let schema = graph.schema(input).clone();
    let wide = keys.iter().copied().chain(schema.len()..schema.len() + images.len()).collect();
    let labels = schema.columns().iter().map(|c| c.label.clone());
    let labels = labels.chain(images.iter().map(|_| "image".into())).collect();
    let exprs = schema.identity().into_iter().chain(images).collect();
    let imaged = graph.add(Map::new(input, exprs).labelled(labels))?;
    Ok(Some((imaged, wide)))
}
