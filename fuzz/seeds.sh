#!/usr/bin/env bash
# Fills fuzz/corpus with seeds: the queries of tests/cases for the target that reads SQL, type names for the one that
# reads types, and a few long runs of bytes for the targets that read decisions: a short input gives an empty plan.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
export LC_ALL=C

mkdir -p corpus/{parse_lower,print_parse,laws,frontier,sql_types}

# The first byte, below 128, says that the rest is text.
find ../tests/cases -name '*.case' | while read -r file; do
    awk 'BEGIN { printf " " } /^[a-z]+:$/ { on = $0 == "query:"; next } on && NF { print }' "$file" \
        >"corpus/parse_lower/$(basename "$file" .case)"
done

# bytes SEED LENGTH: the same bytes every time. awk cannot print a NUL; 1 to 255 will do.
bytes() { awk -v seed="$1" -v n="$2" 'BEGIN { srand(seed); for (i = 0; i < n; i++) printf "%c", 1 + int(255 * rand()) }'; }
for target in print_parse laws frontier; do
    for seed in 1 2 3 4 5 6 7 8; do bytes "$seed" $((64 * seed)) >"corpus/$target/seed-$seed"; done
done
# Words of SQL: the first byte is above 127.
for seed in 1 2 3 4 5 6 7 8; do
    { printf '\377'; bytes "$seed" $((8 * seed)); } >"corpus/parse_lower/words-$seed"
done

i=0
while read -r name; do
    i=$((i + 1))
    printf '%s' "$name" >"corpus/sql_types/type-$i"
done <<'TYPES'
int
bigint[]
numeric(10,2)
character varying(20)
timestamp(3) with time zone
interval day to second(2)
bit varying(8)[][]
double precision
"Quoted ""name"""
public."my.type"[]
char(3)
time(6) without time zone
numeric(5,-2)
TYPES
