SELECT o.id, l.message
FROM orders o JOIN log l ON l.at = o.placed;

SELECT placed, max(amount) AS top
FROM orders
GROUP BY placed;
