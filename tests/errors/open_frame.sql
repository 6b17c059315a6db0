SELECT id, last_value(id) OVER (ORDER BY placed) AS latest FROM orders;
