SELECT id,
       CASE WHEN amount > 100 THEN 'large'
            WHEN amount > = 10 THEN 'middle' END AS size
FROM orders;
