//! Checks that a printed plan, read again, means the same: `eval(lower(parse(print(render(Q))))) = eval(Q)`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::sync::Arc;
use trickle_core::catalog::MemoryCatalog;
use trickle_core::eval::{Database, eval, same_bag};
use trickle_core::graph::{Format, explain};
use trickle_core::lower::{Lowered, lower};
use trickle_core::sql::{BufferSources, Profile, print_query, render_query};
use trickle_core::testing::{Choice, Limits, change, sample, tables};

fuzz_target!(|bytes: &[u8]| {
    let tables = tables();
    let mut catalog = MemoryCatalog::new();
    for table in &tables {
        if let Err(e) = catalog.add_table((**table).clone()) {
            panic!("{e}");
        }
    }
    let mut choice = Choice::bytes(bytes);
    let limits = Limits { operators: 1 + choice.below(7), opaque: false, raising: false, clock: false };
    let sample = sample(&mut choice, &tables, &limits).unwrap_or_else(|e| panic!("generator: {e}"));
    let db: Database = change(&mut choice, &tables, 4);
    let names: Vec<Arc<str>> =
        (0..sample.graph.schema(sample.root).len()).map(|i| Arc::from(format!("c{i}"))).collect();
    let sources = BufferSources::new("buffers");
    let query = match render_query(&sample.graph, sample.root, &sources, &Profile::default(), &names) {
        Ok(query) => query,
        Err(e) => panic!("{e}"),
    };
    let text = print_query(&query).text;
    let again = match lower(&text, &catalog) {
        Ok(Lowered::Query(query)) => query,
        // The printer writes some constructs that the front end does not read yet.
        Ok(Lowered::Unsupported(_)) => return,
        Err(e) => panic!("{e}\n{text}"),
    };
    assert_eq!(again.columns, names, "{text}");
    let (expected, found) = (eval(&sample.graph, sample.root, &db), eval(&again.graph, again.root, &db));
    match (expected, found) {
        (Ok(expected), Ok(found)) => assert!(
            same_bag(&expected, &found),
            "{text}\n{}\nexpected:\n{expected}found:\n{found}",
            explain(&again.graph, again.root, Format::Text)
        ),
        (Err(_), _) => {}
        (Ok(_), Err(e)) => panic!("{e}\n{text}"),
    }
});
