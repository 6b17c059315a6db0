//! Replays recorded refreshes under the cost model. For each query, prints the total time of the model's
//! choices, of the best choices in hindsight, of full refreshes alone, and of deltas alone.
//!
//! ```console
//! $ cargo run -p trickle-core --example cost_trace [TRACE.csv]
//! ```
//!
//! After a header, a trace has a line for each refresh: the query's name, the number of change rows, and the
//! milliseconds of a full refresh and of a delta. Without a file, the program replays the trace with which
//! the tests check the model.

#![allow(clippy::print_stdout, reason = "a program that prints")]

use std::collections::BTreeMap;
use std::error::Error;
use trickle_core::cost::{Inputs, Model, Policy, Sample, Strategy, choose};

const RECORDED: &str = include_str!("../src/cost/trace.csv");

/// The number of rows in the tables over which the trace was recorded.
const SOURCE_ROWS: u64 = 100_000;

/// The number of change rows, the milliseconds of a full refresh, and the milliseconds of a delta.
type Refresh = (u64, f64, f64);

fn parse(trace: &str) -> Result<BTreeMap<&str, Vec<Refresh>>, Box<dyn Error>> {
    let mut queries: BTreeMap<&str, Vec<Refresh>> = BTreeMap::new();
    for line in trace.lines().skip(1).filter(|l| !l.is_empty()) {
        let cells: Vec<&str> = line.split(',').collect();
        let [query, rows, full, delta] = cells[..] else {
            return Err(format!("not four cells: {line}").into());
        };
        queries.entry(query).or_default().push((rows.parse()?, full.parse()?, delta.parse()?));
    }
    Ok(queries)
}

fn main() -> Result<(), Box<dyn Error>> {
    let given = std::env::args().nth(1).map(std::fs::read_to_string).transpose()?;
    let trace = given.as_deref().unwrap_or(RECORDED);
    println!(
        "{:12} {:>9} {:>12} {:>12} {:>12} {:>12}  regret",
        "query", "refreshes", "chosen ms", "best ms", "full ms", "delta ms"
    );
    for (query, refreshes) in parse(trace)? {
        let mut model = Model::default();
        let (mut chosen, mut best, mut fulls, mut deltas) = (0.0, 0.0, 0.0, 0.0);
        for (delta_rows, full, delta) in &refreshes {
            let inputs =
                Inputs { delta_rows: *delta_rows, source_rows: SOURCE_ROWS, result_rows: SOURCE_ROWS };
            let ways = [Strategy::Delta, Strategy::Full];
            let strategy = choose(&model, &inputs, &ways, &Policy::default()).strategy;
            let ms = if strategy == Strategy::Delta { *delta } else { *full };
            model.observe(&Sample { strategy, inputs, ms });
            (chosen, best, fulls, deltas) =
                (chosen + ms, best + full.min(*delta), fulls + full, deltas + delta);
        }
        println!(
            "{query:12} {:>9} {chosen:>12.1} {best:>12.1} {fulls:>12.1} {deltas:>12.1}  {:.2} times the best",
            refreshes.len(),
            chosen / best
        );
    }
    Ok(())
}
