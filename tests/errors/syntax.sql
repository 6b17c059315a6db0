SELECT region, count(*)
FROM customers
GROUP region;
