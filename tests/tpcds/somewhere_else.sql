SELECT c.c_birth_country, count(*) AS customers, count(DISTINCT c.c_last_name) AS names, max(c.c_customer_sk) AS newest
FROM customer c
WHERE EXISTS (
        SELECT 1 FROM store_sales ss JOIN date_dim d ON d.d_date_sk = ss.ss_sold_date_sk
        WHERE ss.ss_customer_sk = c.c_customer_sk AND d.d_year = 2001 AND d.d_moy BETWEEN 1 AND 4
    )
    AND (
        EXISTS (
            SELECT 1 FROM web_sales ws JOIN date_dim d ON d.d_date_sk = ws.ws_sold_date_sk
            WHERE ws.ws_bill_customer_sk = c.c_customer_sk AND d.d_year = 2001 AND d.d_moy BETWEEN 1 AND 4
        )
        OR EXISTS (
            SELECT 1 FROM catalog_sales cs JOIN date_dim d ON d.d_date_sk = cs.cs_sold_date_sk
            WHERE cs.cs_bill_customer_sk = c.c_customer_sk AND d.d_year = 2001 AND d.d_moy BETWEEN 1 AND 4
        )
    )
GROUP BY c.c_birth_country
