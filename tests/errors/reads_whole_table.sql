SELECT a.id AS a, b.id AS b FROM orders a JOIN orders b ON a.amount < b.amount;
