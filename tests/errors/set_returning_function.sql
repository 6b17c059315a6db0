SELECT id, generate_series(1, 2) AS nth FROM orders;
