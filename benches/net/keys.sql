-- Told apart by key: of a key with one change, what it was beside what it is. Keys with more changes would be merged as in
-- rows.sql; here there are none, which is the best case.
WITH more AS MATERIALIZED (SELECT id FROM net_trial GROUP BY id HAVING count(*) > 2),
was AS (SELECT * FROM net_trial t WHERE w < 0 AND NOT EXISTS (SELECT FROM more WHERE more.id = t.id)),
is_now AS (SELECT * FROM net_trial t WHERE w > 0 AND NOT EXISTS (SELECT FROM more WHERE more.id = t.id)),
pairs AS MATERIALIZED (
    SELECT w.id AS was_id, i.id, i.region, i.category,
        w.region = i.region AND w.category = i.category AND w.amount = i.amount AND w.score = i.score AS same
    FROM was w FULL JOIN is_now i ON i.id = w.id
)
SELECT (SELECT count(*) FROM pairs WHERE id IS NULL),
    (SELECT count(region || category) FROM pairs WHERE id IS NOT NULL AND same IS NOT TRUE),
    (SELECT count(*) FROM net_trial t WHERE EXISTS (SELECT FROM more WHERE more.id = t.id));
