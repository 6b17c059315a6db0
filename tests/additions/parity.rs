//! The aggregate `bool_odd`: whether an odd number of values are true. An aggregate for a test.

use super::{Acc, AggCall, Facts, Family, Linear, Upkeep, ValueOf, aggregate, also};
use crate::error::Result;
use crate::expr::{Expr, FuncSig};
use crate::types::{Datum, Type};

pub(super) struct Parity;

impl Family for Parity {
    fn names(&self) -> &'static [&'static str] {
        &["bool_odd"]
    }

    fn facts(&self, _: &str) -> Facts {
        Facts { null: super::NullValue::Never, ..Facts::of(ValueOf::Function) }
    }

    fn signature(&self, name: &str, args: &[Type]) -> Option<FuncSig> {
        (args == [Type::Bool]).then(|| aggregate(name, vec![Type::Bool], Type::Bool, true))
    }

    fn of_nothing(&self, _: &AggCall) -> Option<Datum> {
        Some(Datum::Bool(false))
    }

    fn upkeep(&self, call: &AggCall) -> Upkeep {
        let Some(arg) = call.args.first() else { return Upkeep::Rescan };
        Upkeep::Linear(Linear { accs: vec![Acc::count(also(&call.filter, arg.clone()))], finish })
    }

    fn value(&self, _: &AggCall, rows: &[Vec<Datum>]) -> Result<Datum> {
        let count = rows.iter().filter(|r| r[0] == Datum::Bool(true)).count();
        Ok(Datum::Bool(count % 2 == 1))
    }
}

fn finish(_: &AggCall, accs: &[Expr]) -> Expr {
    let modulo = crate::expr::functions::resolve_operator("%", &[Type::Int8, Type::Int8]).unwrap();
    Expr::call(modulo, vec![accs[0].clone(), Expr::int8(2)]).equals(Expr::int8(1))
}

#[cfg(test)]
mod additions {
    use crate::catalog::MemoryCatalog;
    use crate::lower::{Lowered, lower};
    use crate::testing::{self, Choice, Outcome, Sample};

    #[test]
    fn an_aggregate_that_is_one_file_and_one_line_obeys_the_laws() {
        let catalog = MemoryCatalog::from_ddl("CREATE TABLE t (k int, v int)").unwrap();
        for query in [
            "SELECT k, bool_odd(v > 0) FROM t GROUP BY k",
            "SELECT bool_odd(v > 0) FROM t",
            "SELECT k, bool_odd(DISTINCT v > 0) FILTER (WHERE v IS NOT NULL) FROM t GROUP BY k HAVING bool_odd(k = 1)",
        ] {
            let Ok(Lowered::Query(q)) = lower(query, &catalog) else { panic!("{query}") };
            let sample = Sample { graph: q.graph, root: q.root };
            let mut changed = 0;
            for seed in 0..1_000 {
                let db = testing::change(&mut Choice::seeded(seed), catalog.tables(), 4);
                let outcome = testing::check_all(&sample, &db).unwrap();
                changed += u32::from(matches!(outcome, Outcome::Held { changed: true }));
            }
            assert!(changed > 100, "{query}: {changed}");
        }
    }
}
