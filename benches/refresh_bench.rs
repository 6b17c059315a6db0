//! What surrounds a delta: names, hashes, frontiers, dependency graphs. No PostgreSQL.
//!
//! Each bench named in the suite is added with the function that it measures.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;
use trickle_core::types::Type;
use xxhash_rust::xxh64::xxh64;

/// One hash per row of a change: from a short key to a wide row.
fn xxh64_rows(c: &mut Criterion) {
    let mut group = c.benchmark_group("xxh64");
    for size in [16_usize, 64, 256, 1024, 4096] {
        let row = vec![0x5a_u8; size];
        group.throughput(Throughput::Bytes(size as u64));
        group.bench_function(format!("{size}_bytes"), |b| b.iter(|| xxh64(black_box(&row), 0)));
    }
    group.finish();
}

fn type_names(c: &mut Criterion) {
    c.bench_function("type_parse", |b| b.iter(|| Type::parse(black_box("numeric(10,2)"))));
}

criterion_group!(benches, xxh64_rows, type_names);
criterion_main!(benches);
