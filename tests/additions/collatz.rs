//! The function `collatz`: n / 2 for an even n, and 3 n + 1 for an odd n. A function for a test.

use super::{Row, f};
use crate::error::Result;
use crate::types::Datum;

pub(super) const ROWS: &[Row] = &[f("collatz", "int4 -> int8", 0, collatz)];

fn collatz(args: &[Datum]) -> Result<Datum> {
    let Datum::Int(n) = args[0] else { panic!("the argument is an integer and not NULL") };
    Ok(Datum::Int(if n % 2 == 0 { n / 2 } else { 3 * n + 1 }))
}

#[cfg(test)]
mod additions {
    use crate::catalog::MemoryCatalog;
    use crate::lower::{Lowered, lower};
    use crate::testing::{self, Choice, Outcome, Sample};

    #[test]
    fn a_function_that_is_one_file_and_one_line_obeys_the_laws() {
        let catalog = MemoryCatalog::from_ddl("CREATE TABLE t (k int, v int)").unwrap();
        let query = "SELECT collatz(k), sum(collatz(v)) FROM t WHERE collatz(v) > 0 GROUP BY 1";
        let Ok(Lowered::Query(q)) = lower(query, &catalog) else { panic!("{query}") };
        let sample = Sample { graph: q.graph, root: q.root };
        let mut changed = 0;
        for seed in 0..1_000 {
            let db = testing::change(&mut Choice::seeded(seed), catalog.tables(), 4);
            let outcome = testing::check_all(&sample, &db).unwrap();
            changed += u32::from(matches!(outcome, Outcome::Held { changed: true }));
        }
        assert!(changed > 100, "{changed}");
    }
}
