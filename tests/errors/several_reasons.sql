SELECT id, random() AS lot, generate_series(1, 3) AS place
FROM customers;
