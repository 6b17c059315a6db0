SELECT p.id, p.name, p.starts
FROM (SELECT id, name, date_bin('10 seconds', date_time, '2024-01-01') AS starts FROM person GROUP BY 1, 2, 3) p
JOIN (SELECT seller, date_bin('10 seconds', date_time, '2024-01-01') AS starts FROM auction GROUP BY 1, 2) a
    ON p.id = a.seller AND p.starts = a.starts
