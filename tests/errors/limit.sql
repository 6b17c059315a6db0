SELECT id, amount FROM orders ORDER BY amount DESC, id LIMIT 10;
