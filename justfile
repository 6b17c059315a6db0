# Daily recipes. `./x tools` installs what they call; `./x` has what a fresh machine needs.

set positional-arguments

# List the recipes
default:
    @just --list --unsorted

# Everything that continuous integration runs
test:
    ./x test

# The core's own rings: laws, cases, round trip, mutants. No PostgreSQL
core *ARGS:
    cargo test -p trickle-core --all-features "$@"

# The program: messages, exit codes, connections. No PostgreSQL. TRICKLE_BLESS=1 rewrites the messages: read the diff
cli *ARGS:
    cargo test -p trickle-client --all-features --test cli "$@"

# Model, metrics, status page and terminal view of the program. No PostgreSQL. TRICKLE_BLESS=1 writes the list of metrics
seen *ARGS:
    cargo test -p trickle-client --all-features --bin trickle "$@"

# A picture of the status page that `trickle run --metrics ADDR` serves, by chromium: look at target/page.png and target/page-dark.png
page ADDR="127.0.0.1:9187":
    #!/usr/bin/env bash
    set -euo pipefail
    command -v chromium > /dev/null || { echo "there is no chromium: apt-get install chromium"; exit 1; }
    profile=$(mktemp -d)
    trap 'rm -rf "$profile"' EXIT
    shoot() {
        chromium --headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking --disable-component-update \
            --disable-sync --user-data-dir="$profile" --window-size=1500,1300 --virtual-time-budget=5000 "$@" "http://$ADDR/"
    }
    ADDR="$1"
    mkdir -p target
    shoot --screenshot=target/page.png
    shoot --blink-settings=preferredColorScheme=0 --screenshot=target/page-dark.png

# The PostgreSQL ring on every server found
pg *ARGS:
    cargo test -p trickle-client --all-features --test pg "$@"

# N random plans of at least five operators on every server found
pg-random N:
    TRICKLE_PG_RANDOM="$1" cargo test -p trickle-client --all-features --test pg random -- --nocapture

# Every function, operator, cast, aggregate and type of PostgreSQL's own in a stream table, on every server found. WHICH is a part of the
# list, such as 3/60, or a part of a name. The whole takes more than an hour
catalogue WHICH="all":
    TRICKLE_NIGHTLY=1 TRICKLE_CATALOGUE="$1" cargo test -p trickle-client --all-features --test pg catalogue:: -- --ignored --nocapture

# N random histories from a seed on: writes, migrations, changes of stream tables and refreshes, on every server found
histories N FROM="0":
    TRICKLE_HISTORIES="$1" TRICKLE_HISTORIES_FROM="$2" cargo test -p trickle-client --all-features --test pg histories:: -- --nocapture

# The long forms: all tests on all servers, more seeds, the extension for every PostgreSQL, a soak, the size. Takes hours
nightly:
    #!/usr/bin/env bash
    set -euo pipefail
    export TRICKLE_NIGHTLY=1
    TRICKLE_LAWS=1000000 TRICKLE_ROUND_TRIPS=100000 TRICKLE_SIMULATE=50000 \
        cargo test -q -p trickle-core --all-features --test laws --test round_trip --test simulation
    just additions
    ./x pgrx
    TRICKLE_PG_RANDOM=20000 TRICKLE_PG_BUFFERED=500 TRICKLE_PG_IMMEDIATE=2000 \
        cargo test -q -p trickle-client --all-features --test pg -- random::
    just histories 500
    ./x test
    ./x redteam
    just soak 1800
    just size

# How large the released program is, stripped: 25 MB at most
size:
    cargo test -q -p trickle-client --all-features --test cli -- --ignored size:: --nocapture

# Format check, clippy, docs
lint:
    ./x lint

# Format the code
fmt:
    cargo fmt --all

# Changes of the core's and the engine's public items since BASE that break an embedder
semver BASE:
    cargo semver-checks -p trickle-core -p trickle-engine --default-features --baseline-rev "$1"

# Licences, sources and bans of all dependencies
deny:
    cargo deny --all-features check bans licenses sources

# All benchmarks; an argument filters by name
bench *ARGS:
    cargo bench -p trickle-core -- "$@"

# Benchmarks of the differentiation of each operator
bench-diff *ARGS:
    cargo bench -p trickle-core --bench diff_operators -- "$@"

# Benchmarks as lines that Bencher reads
bench-bencher *ARGS:
    cargo bench -p trickle-core -- --output-format bencher "$@"

# The refresh matrix on a private server, kept as JSON under target/bench_results
bench-matrix *ARGS:
    mkdir -p target/bench_results
    cargo run -q --release -p trickle-client -- bench --private --json "$@" > "target/bench_results/$(date +%Y-%m-%dT%H%M%S).json"
    ls target/bench_results

# The 22 queries of TPC-H with 6,000,000 items on a private server: some minutes, 8 GB of disk
bench-tpch *ARGS:
    cargo run -q --release -p trickle-client -- bench --private --tpch 1 --cycles 4 "$@"

# Two runs of bench-matrix side by side
bench-compare BEFORE AFTER:
    cargo run -q --release -p trickle-client -- bench --compare "$1" "$2"

# What the cost model's choices would have cost on a recorded trace
cost-trace *TRACE:
    cargo run -q -p trickle-core --example cost_trace -- "$@"

# Wrong rules that the laws must kill, then wrong code that the tests must notice
mutants *ARGS:
    cargo test -p trickle-core --all-features --test laws every_mutant -- --nocapture
    cargo mutants -p trickle-core --all-features --baseline skip --timeout 300 "$@"

# An operator, an aggregate and a function, each added to a copy of the core as one file and one line: about three minutes
additions:
    cargo test -p trickle-core --all-features --test additions -- --ignored

# N random runs of the scheduler, the cost model and the frontier under a simulated clock; TRICKLE_SEED=n runs one alone
simulate N="10000":
    TRICKLE_SIMULATE="$1" cargo test -p trickle-core --all-features --test simulation -- --nocapture

# Fuzz one target for so many seconds, from the seeds of fuzz/seeds.sh
fuzz TARGET SECONDS="60":
    #!/usr/bin/env bash
    set -euo pipefail
    fuzz/seeds.sh
    case "$1" in
        parse_lower) how=(-max_len=4096 -dict=fuzz/sql.dict) ;;
        sql_types) how=(-max_len=200 -dict=fuzz/sql.dict) ;;
        frontier) how=(-max_len=64) ;;
        *) how=(-max_len=1024 -len_control=0) ;;
    esac
    cargo fuzz run -s none "$1" -- -max_total_time="$2" -timeout=10 -rss_limit_mb=2048 "${how[@]}"

# How the SQL of all cases differs between two commits, as texts; most cases pin its digest alone
sql-diff FROM TO="HEAD":
    #!/usr/bin/env bash
    set -euo pipefail
    made=$(mktemp -d)
    trap 'git worktree remove --force "$made/tree" 2>/dev/null || true; rm -rf "$made"' EXIT
    for commit in "$1" "$2"; do
        git worktree add -q --detach "$made/tree" "$commit"
        mkdir -p "$made/$commit.sql"
        (cd "$made/tree" && CARGO_TARGET_DIR="$made/target" TRICKLE_SQL="$made/$commit.sql" \
            cargo test -q -p trickle-core --all-features --test cases) >&2
        git worktree remove --force "$made/tree"
    done
    cd "$made" && diff -ru "$1.sql" "$2.sql" || true

# The API documentation, with private items
doc:
    cargo doc --no-deps --document-private-items --open

# Line coverage of the core's rings
cov *ARGS:
    cargo llvm-cov -p trickle-core --all-features --html "$@"

# Writers, twenty stream tables, a refresher that is killed at random, for so many seconds
soak SECONDS="600":
    TRICKLE_SOAK_SECONDS="$1" cargo test -p trickle-client --all-features --test pg soak -- --nocapture

# What 10,000 refreshes leave in the memory of a server process, on every server with the extension (`./x extension` installs it)
leak:
    TRICKLE_REFRESHES=10000 cargo test -q -p trickle-client --all-features --test pg -- --ignored extension::refreshes_leave --nocapture

# What is measured is what was installed: for figures with `--release`, as docs/extension.md does; `./x extension` does not.
# The extension beside the program and an expert's statements, then its capture beside theirs, on one private server that has it
bench-extension *ARGS:
    cargo run -q --release -p trickle-client -- bench --private --extension "$@"
    cargo run -q --release -p trickle-client -- bench --private --extension --capture --writers 1
