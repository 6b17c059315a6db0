-- Merged by all columns; which keys leave is told by an aggregate over what is left. This is what a refresh does.
WITH net AS MATERIALIZED (
    SELECT id, region, category, amount, score, sum(w) AS w FROM net_trial GROUP BY 1, 2, 3, 4, 5 HAVING sum(w) <> 0
)
SELECT (SELECT count(*) FROM (SELECT id FROM net GROUP BY 1 HAVING max(w) < 0) gone),
    (SELECT count(region || category) FROM net WHERE w > 0);
