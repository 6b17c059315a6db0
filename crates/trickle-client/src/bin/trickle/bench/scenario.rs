//! What is measured: queries over one table of facts and two of dimensions, and how an expert keeps each by hand.
//!
//! By hand means: statement triggers write signed rows into a buffer, and a refresh is one statement over that buffer, made
//! for exactly that view. It knows what no tool may assume, such as that a dimension never changes.

/// Tables, and the buffers and triggers of what is kept by hand. `:rows` is the number of facts.
pub(super) const TABLES: &str = include_str!("tables.sql");

/// A query, and the statement that keeps it by hand.
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) query: &'static str,
    /// The key of the result that is kept by hand, and one statement that brings it up to date; where somebody wrote one.
    pub(super) hand: Option<(&'static str, &'static str)>,
    /// Whether a row in a hundred of a dimension changes too.
    pub(super) moves_dimension: bool,
}

const fn plain(name: &'static str, query: &'static str) -> Scenario {
    Scenario { name, query, hand: None, moves_dimension: false }
}

const fn by_hand(
    name: &'static str,
    query: &'static str,
    key: &'static str,
    refresh: &'static str,
) -> Scenario {
    Scenario { name, query, hand: Some((key, refresh)), moves_dimension: false }
}

/// All scenarios, in the order of the report.
pub(crate) const SCENARIOS: &[Scenario] = &[
    by_hand("scan", "SELECT id, region, category, amount, score FROM src", "id", SCAN),
    by_hand("filter", "SELECT id, region, amount FROM src WHERE amount > 5000", "id", FILTER),
    by_hand(
        "aggregate",
        "SELECT region, sum(amount) AS total, count(*) AS n FROM src GROUP BY region",
        "region",
        AGGREGATE,
    ),
    by_hand(
        "join",
        "SELECT s.id, s.region, s.amount, d.region_name FROM src s JOIN dim d ON d.region = s.region",
        "id",
        JOIN,
    ),
    by_hand(
        "join_agg",
        "SELECT d.region_name, sum(s.amount) AS total, count(*) AS n \
         FROM src s JOIN dim d ON d.region = s.region GROUP BY d.region_name",
        "region_name",
        JOIN_AGG,
    ),
    Scenario {
        name: "join_dim",
        query: "SELECT s.id, s.amount, p.label FROM src s JOIN product p ON p.product = s.product",
        hand: Some(("id", JOIN_DIM)),
        moves_dimension: true,
    },
    plain(
        "left_join",
        "SELECT s.id, s.amount, p.label FROM src s LEFT JOIN product p ON p.product = s.product AND p.listed",
    ),
    plain("distinct", "SELECT DISTINCT region, category FROM src"),
    plain(
        "union_all",
        "SELECT id, amount FROM src WHERE score < 50 UNION ALL SELECT id, -amount FROM src WHERE score >= 50",
    ),
    plain(
        "window",
        "SELECT id, product, row_number() OVER (PARTITION BY product ORDER BY amount DESC, id) AS place FROM src",
    ),
    plain("top_k", "SELECT id, amount FROM src ORDER BY amount DESC, id LIMIT 100"),
    plain(
        "lateral",
        "SELECT p.product, p.label, b.id, b.amount FROM product p CROSS JOIN LATERAL \
         (SELECT s.id, s.amount FROM src s WHERE s.product = p.product ORDER BY s.amount DESC, s.id LIMIT 3) b",
    ),
    plain(
        "cte",
        "WITH per AS (SELECT product, sum(amount) AS total FROM src GROUP BY product) \
         SELECT d.product, d.label, per.total FROM per JOIN product d USING (product) WHERE per.total > 10000",
    ),
];

const SCAN: &str = "
WITH net AS (
    SELECT id, region, category, amount, score, sum(w) AS w FROM src_changes
    GROUP BY id, region, category, amount, score HAVING sum(w) <> 0
), gone AS (
    DELETE FROM by_hand h USING net WHERE net.w < 0 AND h.id = net.id
        AND NOT EXISTS (SELECT FROM net kept WHERE kept.w > 0 AND kept.id = net.id)
)
INSERT INTO by_hand SELECT id, region, category, amount, score FROM net WHERE w > 0
ON CONFLICT (id) DO UPDATE SET region = excluded.region, category = excluded.category, amount = excluded.amount,
    score = excluded.score";

const FILTER: &str = "
WITH net AS (
    SELECT id, region, amount, sum(w) AS w FROM src_changes WHERE amount > 5000
    GROUP BY id, region, amount HAVING sum(w) <> 0
), gone AS (
    DELETE FROM by_hand h USING net WHERE net.w < 0 AND h.id = net.id
        AND NOT EXISTS (SELECT FROM net kept WHERE kept.w > 0 AND kept.id = net.id)
)
INSERT INTO by_hand SELECT id, region, amount FROM net WHERE w > 0
ON CONFLICT (id) DO UPDATE SET region = excluded.region, amount = excluded.amount";

const AGGREGATE: &str = "
MERGE INTO by_hand h USING (
    SELECT region, sum(w * amount) AS total, sum(w) AS n FROM src_changes GROUP BY region
) d ON h.region = d.region
WHEN MATCHED AND h.n + d.n = 0 THEN DELETE
WHEN MATCHED THEN UPDATE SET total = h.total + d.total, n = h.n + d.n
WHEN NOT MATCHED AND d.n <> 0 THEN INSERT VALUES (d.region, d.total, d.n)";

const JOIN: &str = "
WITH net AS (
    SELECT id, region, amount, sum(w) AS w FROM src_changes GROUP BY id, region, amount HAVING sum(w) <> 0
), gone AS (
    DELETE FROM by_hand h USING net WHERE net.w < 0 AND h.id = net.id
        AND NOT EXISTS (SELECT FROM net kept WHERE kept.w > 0 AND kept.id = net.id)
)
INSERT INTO by_hand SELECT id, region, amount, region_name FROM net JOIN dim USING (region) WHERE w > 0
ON CONFLICT (id) DO UPDATE SET region = excluded.region, amount = excluded.amount, region_name = excluded.region_name";

const JOIN_AGG: &str = "
MERGE INTO by_hand h USING (
    SELECT region_name, sum(c.total) AS total, sum(c.n) AS n FROM (
        SELECT region, sum(w * amount) AS total, sum(w) AS n FROM src_changes GROUP BY region
    ) c JOIN dim USING (region) GROUP BY region_name
) d ON h.region_name = d.region_name
WHEN MATCHED AND h.n + d.n = 0 THEN DELETE
WHEN MATCHED THEN UPDATE SET total = h.total + d.total, n = h.n + d.n
WHEN NOT MATCHED AND d.n <> 0 THEN INSERT VALUES (d.region_name, d.total, d.n)";

const JOIN_DIM: &str = "
WITH touched AS (
    SELECT id FROM src_changes
    UNION SELECT s.id FROM src s JOIN product_changes c ON s.product = c.product
), fresh AS (
    SELECT s.id, s.amount, p.label FROM touched JOIN src s USING (id) JOIN product p USING (product)
), gone AS (
    DELETE FROM by_hand h USING touched t WHERE h.id = t.id AND NOT EXISTS (SELECT FROM fresh f WHERE f.id = t.id)
)
INSERT INTO by_hand SELECT id, amount, label FROM fresh
ON CONFLICT (id) DO UPDATE SET amount = excluded.amount, label = excluded.label
WHERE (by_hand.amount, by_hand.label) IS DISTINCT FROM (excluded.amount, excluded.label)";
