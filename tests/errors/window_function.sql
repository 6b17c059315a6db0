SELECT id, row_number() OVER (PARTITION BY customer_id ORDER BY placed, id) AS nth FROM orders;
