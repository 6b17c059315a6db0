//! The scenarios that are measured: queries over one table of facts and its dimensions. Each scenario has SQL
//! by which an expert keeps the result up to date by hand.
//!
//! By hand means that statement triggers write signed rows into a buffer, and that a refresh is one statement
//! over this buffer. The expert wrote the statement for exactly one result. The statement relies on facts
//! that a tool cannot assume, for example that a dimension never changes.

/// The tables of all scenarios, and the buffer and triggers for changes of products. `:rows` is the number of
/// facts.
pub(super) const TABLES: &str = include_str!("tables.sql");

/// The buffer and triggers for changes of the table `:facts`.
pub(super) const CAPTURED: &str = include_str!("captured.sql");

/// A query, and an expert's SQL that keeps its result up to date.
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) query: &'static str,
    pub(super) hand: Hand,
    /// The name of the table of facts that changes: src, or a similar table that the statements in `tables`
    /// make.
    pub(super) facts: &'static str,
    pub(super) tables: &'static str,
    /// The condition for the products that each cycle also changes; `:cycle` is the number of the cycle.
    /// `None` if no product changes.
    pub(super) products: Option<&'static str>,
}

/// An expert's SQL that keeps a query's result up to date in the table `by_hand`.
pub(super) struct Hand {
    /// The key of the table `by_hand`.
    pub(super) key: &'static str,
    /// Statements that make other objects that the refresh needs.
    pub(super) beside: &'static str,
    /// The statement that brings `by_hand` and the objects of `beside` up to date; `:facts` is the scenario's
    /// table of facts.
    pub(super) refresh: &'static str,
}

const fn by_hand(
    name: &'static str,
    query: &'static str,
    key: &'static str,
    refresh: &'static str,
) -> Scenario {
    let hand = Hand { key, beside: "", refresh };
    Scenario { name, query, hand, facts: "src", tables: "", products: None }
}

impl Scenario {
    const fn beside(self, beside: &'static str) -> Scenario {
        Scenario { hand: Hand { beside, ..self.hand }, ..self }
    }
    const fn products(self, which: &'static str) -> Scenario {
        Scenario { products: Some(which), ..self }
    }
    const fn over(self, facts: &'static str, tables: &'static str) -> Scenario {
        Scenario { facts, tables, ..self }
    }
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
    by_hand(
        "join_dim",
        "SELECT s.id, s.amount, p.label FROM src s JOIN product p ON p.product = s.product",
        "id",
        JOIN_DIM,
    )
    .products("product % 100 = :cycle % 100"),
    by_hand(
        "left_join",
        "SELECT s.id, s.amount, p.label FROM src s LEFT JOIN product p ON p.product = s.product AND p.listed",
        "id",
        LEFT_JOIN,
    ),
    by_hand("distinct", "SELECT DISTINCT region, category FROM src", "region, category", DISTINCT).beside(
        "CREATE TABLE counts AS SELECT region, category, count(*) AS n FROM src GROUP BY region, category; \
         ALTER TABLE counts ADD PRIMARY KEY (region, category)",
    ),
    by_hand(
        "union_all",
        "SELECT id, amount FROM src WHERE score < 50 UNION ALL SELECT id, -amount FROM src WHERE score >= 50",
        "id",
        UNION_ALL,
    ),
    by_hand(
        "window",
        "SELECT id, product, row_number() OVER (PARTITION BY product ORDER BY amount DESC, id) AS place FROM src",
        "id",
        WINDOW,
    ),
    by_hand("top_k", "SELECT id, amount FROM src ORDER BY amount DESC, id LIMIT 100", "id", TOP_K),
    by_hand(
        "lateral",
        "SELECT p.product, p.label, b.id, b.amount FROM product p CROSS JOIN LATERAL \
         (SELECT s.id, s.amount FROM src s WHERE s.product = p.product ORDER BY s.amount DESC, s.id LIMIT 3) b",
        "product, id",
        LATERAL,
    ),
    by_hand(
        "cte",
        "WITH per AS (SELECT product, sum(amount) AS total FROM src GROUP BY product) \
         SELECT d.product, d.label, per.total FROM per JOIN product d USING (product) WHERE per.total > 10000",
        "product",
        CTE,
    )
    .beside(
        "CREATE TABLE totals AS SELECT product, sum(amount) AS total FROM src GROUP BY product; \
         ALTER TABLE totals ADD PRIMARY KEY (product)",
    ),
    by_hand("wide", "SELECT * FROM wide", "id", include_str!("wide_by_hand.sql"))
        .over("wide", include_str!("wide.sql")),
    by_hand(
        "groups",
        "SELECT id % 100000 AS part, sum(amount) AS total, count(*) AS n FROM src GROUP BY id % 100000",
        "part",
        GROUPS,
    ),
    by_hand(
        "skew",
        "SELECT s.id, s.amount, p.label FROM skew s JOIN product p ON p.product = s.product",
        "id",
        JOIN_DIM,
    )
    .over("skew", include_str!("skew.sql"))
    .products("product IN (0, 1 + :cycle)"),
    by_hand(
        "deep",
        "SELECT s.id, s.amount, d.region_name, k.kind_name, f.family_name, p.label, b.brand_name, c.country_name \
         FROM src s JOIN dim d ON d.region = s.region JOIN kind k ON k.category = s.category \
         JOIN family f ON f.family = k.family JOIN product p ON p.product = s.product \
         JOIN made m ON m.product = s.product JOIN brand b ON b.brand = m.brand JOIN country c ON c.country = b.country",
        "id",
        DEEP,
    )
    .over("src", include_str!("deep.sql")),
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

/// The rows of the result for changed products are looked up and written again.
const JOIN_DIM: &str = "
WITH touched AS (
    SELECT id FROM :facts_changes
    UNION SELECT s.id FROM :facts s JOIN product_changes c ON s.product = c.product
), fresh AS (
    SELECT s.id, s.amount, p.label FROM touched JOIN :facts s USING (id) JOIN product p USING (product)
), gone AS (
    DELETE FROM by_hand h USING touched t WHERE h.id = t.id AND NOT EXISTS (SELECT FROM fresh f WHERE f.id = t.id)
)
INSERT INTO by_hand SELECT id, amount, label FROM fresh
ON CONFLICT (id) DO UPDATE SET amount = excluded.amount, label = excluded.label
WHERE (by_hand.amount, by_hand.label) IS DISTINCT FROM (excluded.amount, excluded.label)";

const LEFT_JOIN: &str = "
WITH net AS (
    SELECT id, amount, product, sum(w) AS w FROM src_changes GROUP BY id, amount, product HAVING sum(w) <> 0
), gone AS (
    DELETE FROM by_hand h USING net WHERE net.w < 0 AND h.id = net.id
        AND NOT EXISTS (SELECT FROM net kept WHERE kept.w > 0 AND kept.id = net.id)
)
INSERT INTO by_hand SELECT n.id, n.amount, p.label FROM net n LEFT JOIN product p ON p.product = n.product AND p.listed
WHERE n.w > 0
ON CONFLICT (id) DO UPDATE SET amount = excluded.amount, label = excluded.label";

/// The weight of each row is stored in the table `counts`. Only rows that come or go are written to the
/// result.
const DISTINCT: &str = "
WITH counted AS (
    INSERT INTO counts SELECT region, category, sum(w) FROM src_changes GROUP BY region, category HAVING sum(w) <> 0
    ON CONFLICT (region, category) DO UPDATE SET n = counts.n + excluded.n RETURNING region, category, n
), gone AS (
    DELETE FROM by_hand h USING counted c WHERE c.n = 0 AND h.region = c.region AND h.category = c.category
)
INSERT INTO by_hand SELECT region, category FROM counted WHERE n > 0 ON CONFLICT DO NOTHING";

/// The two arms of the query read different rows of the table, so a row's key identifies it in the result.
const UNION_ALL: &str = "
WITH net AS (
    SELECT id, CASE WHEN score < 50 THEN amount ELSE -amount END AS amount, sum(w) AS w FROM src_changes
    GROUP BY 1, 2 HAVING sum(w) <> 0
), gone AS (
    DELETE FROM by_hand h USING net WHERE net.w < 0 AND h.id = net.id
        AND NOT EXISTS (SELECT FROM net kept WHERE kept.w > 0 AND kept.id = net.id)
)
INSERT INTO by_hand SELECT id, amount FROM net WHERE w > 0
ON CONFLICT (id) DO UPDATE SET amount = excluded.amount";

/// The rows of partitions that changed are numbered anew.
const WINDOW: &str = "
WITH touched AS (
    SELECT DISTINCT product FROM src_changes
), gone AS (
    DELETE FROM by_hand h USING (SELECT DISTINCT id FROM src_changes) c
    WHERE h.id = c.id AND NOT EXISTS (SELECT FROM src s WHERE s.id = c.id)
)
INSERT INTO by_hand
SELECT id, product, row_number() OVER (PARTITION BY product ORDER BY amount DESC, id) FROM src JOIN touched USING (product)
ON CONFLICT (id) DO UPDATE SET product = excluded.product, place = excluded.place
WHERE (by_hand.product, by_hand.place) IS DISTINCT FROM (excluded.product, excluded.place)";

/// Reading the first hundred rows through the index costs as little as looking at a change.
const TOP_K: &str = "
WITH fresh AS MATERIALIZED (
    SELECT id, amount FROM src ORDER BY amount DESC, id LIMIT 100
), gone AS (
    DELETE FROM by_hand h WHERE NOT EXISTS (SELECT FROM fresh f WHERE f.id = h.id)
)
INSERT INTO by_hand SELECT id, amount FROM fresh
ON CONFLICT (id) DO UPDATE SET amount = excluded.amount WHERE by_hand.amount <> excluded.amount";

const LATERAL: &str = "
WITH touched AS (
    SELECT DISTINCT product FROM src_changes
), fresh AS MATERIALIZED (
    SELECT product, p.label, b.id, b.amount FROM touched JOIN product p USING (product) CROSS JOIN LATERAL
        (SELECT s.id, s.amount FROM src s WHERE s.product = p.product ORDER BY s.amount DESC, s.id LIMIT 3) b
), gone AS (
    DELETE FROM by_hand h USING touched t
    WHERE h.product = t.product AND NOT EXISTS (SELECT FROM fresh f WHERE f.product = h.product AND f.id = h.id)
)
INSERT INTO by_hand SELECT product, label, id, amount FROM fresh
ON CONFLICT (product, id) DO UPDATE SET amount = excluded.amount WHERE by_hand.amount <> excluded.amount";

/// A product without sales keeps the total 0.
const CTE: &str = "
WITH summed AS (
    INSERT INTO totals SELECT product, sum(w * amount) FROM src_changes GROUP BY product
    ON CONFLICT (product) DO UPDATE SET total = totals.total + excluded.total RETURNING product, total
), gone AS (
    DELETE FROM by_hand h USING summed t WHERE h.product = t.product AND t.total <= 10000
)
INSERT INTO by_hand SELECT product, label, total FROM summed JOIN product USING (product) WHERE total > 10000
ON CONFLICT (product) DO UPDATE SET total = excluded.total WHERE by_hand.total <> excluded.total";

const GROUPS: &str = "
MERGE INTO by_hand h USING (
    SELECT id % 100000 AS part, sum(w * amount) AS total, sum(w) AS n FROM src_changes GROUP BY id % 100000
) d ON h.part = d.part
WHEN MATCHED AND h.n + d.n = 0 THEN DELETE
WHEN MATCHED THEN UPDATE SET total = h.total + d.total, n = h.n + d.n
WHEN NOT MATCHED AND d.n <> 0 THEN INSERT VALUES (d.part, d.total, d.n)";

/// The statement assumes that no dimension changes.
const DEEP: &str = "
WITH net AS (
    SELECT id, region, category, amount, product, sum(w) AS w FROM src_changes
    GROUP BY id, region, category, amount, product HAVING sum(w) <> 0
), gone AS (
    DELETE FROM by_hand h USING net WHERE net.w < 0 AND h.id = net.id
        AND NOT EXISTS (SELECT FROM net kept WHERE kept.w > 0 AND kept.id = net.id)
)
INSERT INTO by_hand SELECT id, amount, region_name, kind_name, family_name, label, brand_name, country_name
FROM net JOIN dim USING (region) JOIN kind USING (category) JOIN family USING (family) JOIN product USING (product)
    JOIN made USING (product) JOIN brand USING (brand) JOIN country USING (country) WHERE w > 0
ON CONFLICT (id) DO UPDATE SET amount = excluded.amount, region_name = excluded.region_name, kind_name = excluded.kind_name,
    family_name = excluded.family_name, label = excluded.label, brand_name = excluded.brand_name,
    country_name = excluded.country_name";
