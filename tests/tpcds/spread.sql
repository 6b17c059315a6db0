WITH spread AS (
    SELECT ss.ss_store_sk, i.i_brand, d.d_moy, avg(ss.ss_quantity) AS mean, stddev_samp(ss.ss_quantity) AS deviation
    FROM store_sales ss
    JOIN item i ON i.i_item_sk = ss.ss_item_sk
    JOIN date_dim d ON d.d_date_sk = ss.ss_sold_date_sk
    WHERE d.d_year = 2001
    GROUP BY ss.ss_store_sk, i.i_brand, d.d_moy
    HAVING avg(ss.ss_quantity) <> 0 AND stddev_samp(ss.ss_quantity) / avg(ss.ss_quantity) > 0.4
)
SELECT a.ss_store_sk, a.i_brand, a.d_moy, a.mean, a.deviation, b.mean AS next_mean, b.deviation AS next_deviation
FROM spread a
JOIN spread b ON b.ss_store_sk = a.ss_store_sk AND b.i_brand = a.i_brand AND b.d_moy = a.d_moy + 1
