SELECT id, amount FROM orders ORDER BY amount DESC, id LIMIT (SELECT count(*) FROM customers);
