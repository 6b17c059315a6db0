-- name: totals
-- schedule: soon
-- mode: diff
SELECT region, count(*) AS n FROM customers GROUP BY region;
