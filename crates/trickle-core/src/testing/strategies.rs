//! The generators of [`crate::testing`] as strategies of the crate `proptest`. The values of these strategies
//! shrink.

use super::{Choice, Limits, Sample, change, exprs, sample, shrink};
use crate::catalog::TableDef;
use crate::error::Result;
use crate::eval::Database;
use crate::expr::Expr;
use crate::graph::Schema;
use crate::types::Type;
use proptest::prelude::Rng;
use proptest::strategy::{NewTree, Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

/// A query, with a state of its tables and a change of that state.
#[derive(Clone)]
pub struct Changed {
    /// The query.
    pub sample: Sample,
    /// The state of the tables and the change.
    pub database: Database,
}

impl fmt::Debug for Changed {
    /// Writes the query, the tables and the change as SQL, ready to be pasted.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&super::reproduction(&self.sample, &self.database))
    }
}

/// A function that makes a value from random decisions.
type Draw<T> = dyn Fn(&mut Choice) -> Result<T> + Send + Sync;

/// A strategy whose values are drawn from a seed. A value shrinks through a list of smaller values.
pub struct Drawn<T> {
    draw: Arc<Draw<T>>,
    smaller: fn(&T) -> Vec<T>,
}

impl<T> Clone for Drawn<T> {
    fn clone(&self) -> Self {
        Drawn { draw: self.draw.clone(), smaller: self.smaller }
    }
}

impl<T> fmt::Debug for Drawn<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Drawn")
    }
}

/// A value that shrinks: the present value, the larger value that it tries to replace, and the smaller values
/// that have not been tried yet.
pub struct Shrinking<T> {
    value: T,
    larger: Option<T>,
    untried: Option<VecDeque<T>>,
    smaller: fn(&T) -> Vec<T>,
}

impl<T> fmt::Debug for Shrinking<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Shrinking")
    }
}

impl<T: Clone + fmt::Debug> Strategy for Drawn<T> {
    type Tree = Shrinking<T>;
    type Value = T;

    fn new_tree(&self, runner: &mut TestRunner) -> NewTree<Self> {
        let value = (self.draw)(&mut Choice::seeded(runner.rng().next_u64()));
        let value = value.map_err(|e| e.to_string())?;
        Ok(Shrinking { value, larger: None, untried: None, smaller: self.smaller })
    }
}

impl<T: Clone + fmt::Debug> ValueTree for Shrinking<T> {
    type Value = T;

    fn current(&self) -> T {
        self.value.clone()
    }

    /// Continues with a smaller value. If the present value came from shrinking, the test failed with this
    /// value too, so its own smaller values are tried next.
    fn simplify(&mut self) -> bool {
        if self.larger.take().is_some() || self.untried.is_none() {
            self.untried = Some((self.smaller)(&self.value).into());
        }
        let Some(next) = self.untried.as_mut().and_then(VecDeque::pop_front) else { return false };
        self.larger = Some(std::mem::replace(&mut self.value, next));
        true
    }

    /// Goes back to the larger value, since the test does not fail with the present value.
    fn complicate(&mut self) -> bool {
        let Some(larger) = self.larger.take() else { return false };
        self.value = larger;
        true
    }
}

/// Returns random states of `tables`, each with a random change of it. A table has at most `rows` rows.
/// States shrink by rows.
pub fn changes(tables: Vec<Arc<TableDef>>, rows: usize) -> Drawn<Database> {
    Drawn { draw: Arc::new(move |choice| Ok(change(choice, &tables, rows))), smaller: shrink::smaller_data }
}

/// Returns random queries over `tables`. Queries shrink to parts of themselves, and to queries with one
/// operator less.
pub fn queries(tables: Vec<Arc<TableDef>>, limits: Limits) -> Drawn<Sample> {
    Drawn { draw: Arc::new(move |choice| sample(choice, &tables, &limits)), smaller: shrink::smaller_plans }
}

/// Returns random queries over `tables`, each with a state and a change of these tables. Queries and states
/// shrink as those of [`queries`] and [`changes`] do.
pub fn changed_queries(tables: Vec<Arc<TableDef>>, limits: Limits, rows: usize) -> Drawn<Changed> {
    let draw = move |choice: &mut Choice| {
        let sample = sample(choice, &tables, &limits)?;
        Ok(Changed { sample, database: change(choice, &tables, rows) })
    };
    Drawn { draw: Arc::new(draw), smaller: smaller_changed }
}

fn smaller_changed(of: &Changed) -> Vec<Changed> {
    let plans = shrink::smaller_plans(&of.sample);
    let plans = plans.into_iter().map(|sample| Changed { sample, database: of.database.clone() });
    let data = shrink::smaller_data(&of.database);
    plans.chain(data.into_iter().map(|database| Changed { sample: of.sample.clone(), database })).collect()
}

/// Returns random expressions of type `ty` over the columns of `schema`, at most `depth` calls deep. An
/// expression shrinks to its operands of the same type.
pub fn expressions(schema: Schema, ty: Type, depth: usize, limits: Limits) -> Drawn<Expr> {
    let draw = move |choice: &mut Choice| Ok(exprs::scalar(choice, &schema, &ty, depth, &limits));
    Drawn { draw: Arc::new(draw), smaller: smaller_expressions }
}

fn smaller_expressions(of: &Expr) -> Vec<Expr> {
    of.children().into_iter().filter(|e| e.ty() == of.ty()).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{check_all, tables};
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]

        #[test]
        fn deltas_of_drawn_queries_are_exact(drawn in changed_queries(tables(), Limits::default(), 4)) {
            let outcome = check_all(&drawn.sample, &drawn.database);
            prop_assert!(outcome.is_ok(), "{outcome:?}");
        }
    }

    /// Catches a strategy whose values do not shrink, or whose search ends before the smallest value.
    #[test]
    fn a_failure_shrinks_to_a_small_query_and_few_rows() {
        let mut runner = TestRunner::deterministic();
        let strategy = changed_queries(tables(), Limits::default(), 4);
        let operators = |c: &Changed| c.sample.graph.reachable(c.sample.root).len();
        let rows = |c: &Changed| c.database.before.values().map(|rows| rows.iter().count()).sum::<usize>();
        let found = runner.run(&strategy, |c| {
            prop_assert!(operators(&c) < 3 || rows(&c) < 2);
            Ok(())
        });
        let Err(proptest::test_runner::TestError::Fail(_, small)) = found else { panic!("{found:?}") };
        assert!(operators(&small) <= 4, "{small:?}");
        assert_eq!(rows(&small), 2, "{small:?}");
    }
}
