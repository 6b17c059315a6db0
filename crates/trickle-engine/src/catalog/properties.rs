//! Properties of tables, types and functions that a plan may rely on, as the server's catalog declares them.
//! Each property has its guarantee on PostgreSQL 15 to 18, the function or statement that reads it, and the
//! cases without the guarantee. The file docs/properties.md is made from this list. A test of this module
//! searches the other modules for catalog columns that declare such properties. Only `catalog` and `schema`
//! may read these columns.
//!
//! The server must guarantee a new property for every row that a query can see. No role, setting or kind of
//! table may be an exception. A plan must be made again when the property is lost (`pgtrickle.relied`, the
//! fingerprints). A declaration counts as a property only if the server enforces it.

/// A property that the server's catalog declares.
#[derive(Clone, Copy, Debug)]
pub struct Property {
    /// The short name of the property, which begins its row of the table.
    pub name: &'static str,
    /// The use that plans make of the property; empty where plans do not use it.
    pub used: &'static str,
    /// The guarantee of the server, with the chapter or view of the PostgreSQL manual that states it.
    pub holds: &'static str,
    /// The function of the catalog, or the statement of this module, that reads the property; empty where no
    /// code reads it.
    pub read: &'static str,
    /// Cases in which the property is declared but not guaranteed, or in which it is lost. Each case has a
    /// test of `tests/pg`.
    pub without: &'static [(&'static str, &'static str)],
}

/// All properties.
pub const PROPERTIES: &[Property] = &[
    Property {
        name: "A column has no NULL",
        used: "NULLs need not be told apart from values in keys, joins, NOT IN, counts and sums",
        holds: "`attnotnull`, where every table of the tree has it and no NOT NULL constraint of it is NOT VALID (pg_attribute, pg_constraint)",
        read: "pgtrickle.never_null",
        without: &[
            ("NOT VALID (18)", "guarantees::a_not_null_that_is_not_valid_is_not_believed"),
            (
                "a child without it, NO INHERIT (18)",
                "guarantees::a_not_null_that_a_child_has_not_is_not_believed",
            ),
            ("a child that drops it", "guarantees::a_not_null_that_a_child_loses_later_is_noticed"),
            ("a foreign table", "properties::a_foreign_table_declares_and_keeps_nothing"),
            ("the column of a view", "properties::views_and_parents_have_no_keys"),
        ],
    },
    Property {
        name: "Columns are a key",
        used: "rows are found and told apart by it; joins and groups by it have at most one row",
        holds: "a unique index that is valid, immediate and whole, of plain columns, under each column's own collation and its type's own \
                equality; and no NULL in the columns (pg_index)",
        read: "pgtrickle.is_key",
        without: &[
            (
                "partial, of expressions, of another collation, of other operators",
                "guarantees::an_index_that_is_no_key_is_not_taken_for_one",
            ),
            ("invalid", "properties::an_index_that_could_not_be_built_is_no_key"),
            ("deferrable", "properties::a_key_that_is_checked_late_is_none"),
            ("temporal, WITHOUT OVERLAPS (18)", "properties::a_temporal_key_is_none"),
            ("a parent's key, and its children", "properties::views_and_parents_have_no_keys"),
        ],
    },
    Property {
        name: "A foreign key is kept",
        used: "",
        holds: "by triggers, which a session with `session_replication_role = replica`, DISABLE TRIGGER, NOT VALID, DEFERRABLE and NOT ENFORCED \
                leave out. The library's option `trust_foreign_keys` relies on those that are validated and not deferrable; trickle does not set it",
        read: "FOREIGN_KEYS",
        without: &[("each of these", "properties::constraints_that_rows_break_are_not_believed")],
    },
    Property {
        name: "A CHECK constraint holds",
        used: "",
        holds: "for all rows where it is validated and enforced; it is not read",
        read: "",
        without: &[(
            "NOT VALID, NOT ENFORCED (18)",
            "properties::constraints_that_rows_break_are_not_believed",
        )],
    },
    Property {
        name: "A domain has constraints",
        used: "a value that is cast to it may raise, and is computed only where the query computes it",
        holds: "for casts and stored values; not for the NULLs of an outer join, so that its NOT NULL says nothing of a column (CREATE DOMAIN, Notes)",
        read: "TYPES",
        without: &[(
            "NULL in a domain that is NOT NULL",
            "properties::a_domain_that_is_not_null_has_nulls_in_outer_joins",
        )],
    },
    Property {
        name: "A column is generated",
        used: "a virtual one is computed from the row, and is not captured",
        holds: "always (CREATE TABLE, GENERATED ALWAYS AS); another expression has the plan made anew",
        read: "COLUMNS",
        without: &[(
            "another expression (17, 18)",
            "properties::another_expression_of_a_generated_column_is_noticed",
        )],
    },
    Property {
        name: "A column is an identity",
        used: "",
        holds: "nothing of its values: it may be given any; it is not read",
        read: "",
        without: &[("values given twice", "properties::constraints_that_rows_break_are_not_believed")],
    },
    Property {
        name: "A table has children or partitions",
        used: "ONLY reads fewer rows; keys of a parent by inheritance are its own rows' alone",
        holds: "in the moment in which a statement is planned, whatever its snapshot; a refresh that meets another tree begins anew",
        read: "RELATION",
        without: &[
            (
                "a foreign partition or child",
                "properties::a_table_with_a_foreign_partition_is_read_as_a_foreign_one",
            ),
            ("a child with the parent's keys again", "properties::views_and_parents_have_no_keys"),
            (
                "a partition that comes meanwhile",
                "partitioned::partitions_come_between_any_two_statements_of_a_refresh",
            ),
            (
                "one that comes and goes between refreshes",
                "partitioned::a_partition_that_came_and_went_leaves_no_row",
            ),
        ],
    },
    Property {
        name: "A partition has bounds",
        used: "",
        holds: "for all its rows; they are not read, the server prunes by itself",
        read: "",
        without: &[],
    },
    Property {
        name: "Volatility of a function",
        used: "IMMUTABLE and STABLE ones are computed again with the same value; VOLATILE ones are refused",
        holds: "as its owner declares it, as in an index (Function Volatility Categories); a table that an IMMUTABLE one reads is not followed",
        read: "FUNCTIONS, CALLS",
        without: &[("another volatility later", "properties::another_volatility_or_strictness_is_noticed")],
    },
    Property {
        name: "A function is STRICT",
        used: "",
        holds: "always: the server does not call it for a NULL (CREATE FUNCTION, STRICT); only the evaluator that tests plans asks for it",
        read: "FUNCTIONS, CALLS",
        without: &[("CALLED ON NULL INPUT later", "properties::another_volatility_or_strictness_is_noticed")],
    },
    Property {
        name: "A type has equality, hashing and order",
        used: "what has no equality is compared as text or computed anew; what cannot be hashed or sorted is not",
        holds: "by the default operator classes of the type, whose operators stand where the query's path finds them (pg_opclass)",
        read: "TYPES",
        without: &[(
            "types without some of them",
            "named_types::properties_of_types_are_asked_of_the_server",
        )],
    },
    Property {
        name: "Row security hides rows",
        used: "a table of which the owner of the stream table may not read all rows is read as a view is",
        holds: "for that role, at the time of the plan; where it begins, ends or has other policies the plan is made anew (Row Security Policies)",
        read: "RELATION",
        without: &[("it begins or ends later", "row_security::row_security_that_begins_or_ends_recomputes")],
    },
    Property {
        name: "A collation is deterministic",
        used: "equal texts are the same bytes, and may stand for each other",
        holds: "always: it is fixed when the collation is made (CREATE COLLATION)",
        read: "COLUMNS, TYPES, COLLATION",
        without: &[("nondeterministic", "traps_values::equal_but_differently_written")],
    },
];

/// Returns the table of docs/properties.md.
pub fn table() -> String {
    let mut text = "| property | plans use it | guarantee | without it |\n|---|---|---|---|\n".to_owned();
    for p in PROPERTIES {
        let used = if p.used.is_empty() { "no" } else { p.used };
        let read = if p.read.is_empty() {
            String::new()
        } else {
            format!(" (read by `{}`)", p.read.replace(", ", "`, `"))
        };
        let without: Vec<String> = p.without.iter().map(|(case, test)| format!("{case}: `{test}`")).collect();
        text += &format!("| {} | {used} | {}{read} | {} |\n", p.name, p.holds, without.join("; "));
    }
    text
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    /// Names in the server's catalog that declare a property.
    const WORDS: &[&str] = &[
        "attnotnull",
        "attgenerated",
        "attidentity",
        "indisunique",
        "indnullsnotdistinct",
        "indisexclusion",
        "conenforced",
        "convalidated",
        "condeferrable",
        "connoinherit",
        "conperiod",
        "typnotnull",
        "provolatile",
        "proisstrict",
        "relpartbound",
        "collisdeterministic",
    ];

    /// Files outside this module and the functions of the catalog (`schema`) that may use such a name, each
    /// with the reason.
    const ELSEWHERE: &[(&str, &str)] = &[
        ("stored.rs", "the columns of a stream table itself, which trickle made"),
        ("alter/evolve.rs", "the columns and the key of a stream table itself"),
        ("immediate.rs", "chooses among indexes that pgtrickle.is_key takes for keys"),
        ("resolve/reads.rs", "finds a volatile operator, which is refused"),
        (
            "resolve/lookalikes.rs",
            "recomputes a query with a cast or an aggregate over a function that is not immutable",
        ),
        ("security.rs", "follows the functions that virtual columns call"),
    ];

    fn look(directory: &Path, root: &Path) {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                look(&path, root);
                continue;
            }
            let name = path.strip_prefix(root).unwrap().display().to_string();
            if name.starts_with("catalog/")
                || name.starts_with("schema/")
                || ELSEWHERE.iter().any(|(f, _)| *f == name)
            {
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            for word in WORDS {
                assert!(
                    !text.contains(word),
                    "{name} reads {word}, a property, beside catalog/properties.rs"
                );
            }
        }
    }

    #[test]
    fn properties_are_read_in_one_module() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        look(&root, &root);
    }

    #[test]
    fn each_reader_of_a_property_is_there() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let read = |of: &str| std::fs::read_to_string(directory.join(of)).unwrap();
        let module = ["tables.rs", "types.rs", "functions.rs", "operators.rs"]
            .map(|f| read(&format!("catalog/{f}")))
            .concat();
        let schema = read("schema/v3.sql");
        for reader in super::PROPERTIES.iter().flat_map(|p| p.read.split(", ")).filter(|r| !r.is_empty()) {
            let found = match reader.strip_prefix("pgtrickle.") {
                Some(_) => schema.contains(&format!("CREATE FUNCTION {reader}(")),
                None => module.contains(&format!("const {reader}: &str")),
            };
            assert!(found, "nothing is called {reader}");
        }
    }
}
