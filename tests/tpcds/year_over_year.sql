WITH totals AS (
    SELECT c.c_customer_sk, c.c_first_name, c.c_last_name, d.d_year, 's' AS channel, sum(ss.ss_ext_sales_price) AS total
    FROM customer c
    JOIN store_sales ss ON ss.ss_customer_sk = c.c_customer_sk
    JOIN date_dim d ON d.d_date_sk = ss.ss_sold_date_sk
    GROUP BY c.c_customer_sk, c.c_first_name, c.c_last_name, d.d_year
    UNION ALL
    SELECT c.c_customer_sk, c.c_first_name, c.c_last_name, d.d_year, 'w', sum(ws.ws_ext_sales_price)
    FROM customer c
    JOIN web_sales ws ON ws.ws_bill_customer_sk = c.c_customer_sk
    JOIN date_dim d ON d.d_date_sk = ws.ws_sold_date_sk
    GROUP BY c.c_customer_sk, c.c_first_name, c.c_last_name, d.d_year
)
SELECT w2.c_customer_sk, w2.c_first_name, w2.c_last_name
FROM totals s1
JOIN totals s2 ON s2.c_customer_sk = s1.c_customer_sk
JOIN totals w1 ON w1.c_customer_sk = s1.c_customer_sk
JOIN totals w2 ON w2.c_customer_sk = s1.c_customer_sk
WHERE s1.channel = 's' AND s2.channel = 's' AND w1.channel = 'w' AND w2.channel = 'w'
    AND s1.d_year = 2000 AND s2.d_year = 2001 AND w1.d_year = 2000 AND w2.d_year = 2001
    AND s1.total > 0 AND w1.total > 0
    AND CASE WHEN w1.total > 0 THEN w2.total / w1.total END > CASE WHEN s1.total > 0 THEN s2.total / s1.total END
