-- note: of each region
-- schedul: 5m
SELECT region, count(*) AS n FROM customers GROUP BY region;
-- diamond-consistency: none
SELECT id, name FROM customers;
