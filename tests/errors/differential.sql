-- mode: differential
SELECT id, last_value(id) OVER (ORDER BY region) AS place FROM customers;
