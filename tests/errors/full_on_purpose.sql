-- mode: full
SELECT id, generate_series(1, 2) AS place FROM customers;
