SELECT id, random() AS lot, rank() OVER (ORDER BY name) AS place
FROM customers;
