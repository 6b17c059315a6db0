-- A thousand changed rows of a table with a key: 70 % updates, 15 % deletes, 15 % inserts, as a buffer holds them.
DROP TABLE IF EXISTS net_trial;
CREATE TABLE net_trial AS
SELECT w, id, 'r' || id % 10 AS region, 'c' || id % 50 AS category,
    ((id * 37 + CASE WHEN w > 0 THEN 7 ELSE 0 END) % 10000)::numeric(12, 2) AS amount, id + w AS score
FROM generate_series(1, 1000) id, (VALUES (-1::smallint), (1::smallint)) signs(w)
WHERE CASE WHEN w < 0 THEN id <= 850 ELSE id <= 700 OR id > 850 END;
VACUUM ANALYZE net_trial;
