SELECT id, random() AS lot, last_value(id) OVER (ORDER BY region) AS place
FROM customers;
