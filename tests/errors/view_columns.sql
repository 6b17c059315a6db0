CREATE VIEW v (a, b) AS
SELECT c.id, o.idd
FROM customers c JOIN orders o ON o.customer_id = c.id -- a comment at the end
;
