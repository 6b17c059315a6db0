SELECT region, name, count(*) AS customers
FROM customers
GROUP BY region;
