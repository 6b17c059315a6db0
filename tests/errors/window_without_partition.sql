SELECT id, rank() OVER (ORDER BY amount) AS place, sum(amount) OVER () AS total FROM orders;
