SELECT c.id, o.id FROM customers c JOIN orders o ON o.customer_id = c.id;
