WITH monthly AS (
    SELECT i.i_category, i.i_brand, s.s_store_name, d.d_year, d.d_moy, sum(ss.ss_ext_sales_price) AS sales,
        avg(sum(ss.ss_ext_sales_price)) OVER (PARTITION BY i.i_category, i.i_brand, s.s_store_name, d.d_year) AS average,
        rank() OVER (PARTITION BY i.i_category, i.i_brand, s.s_store_name ORDER BY d.d_year, d.d_moy) AS place
    FROM item i
    JOIN store_sales ss ON ss.ss_item_sk = i.i_item_sk
    JOIN date_dim d ON d.d_date_sk = ss.ss_sold_date_sk
    JOIN store s ON s.s_store_sk = ss.ss_store_sk
    GROUP BY i.i_category, i.i_brand, s.s_store_name, d.d_year, d.d_moy
)
SELECT m.i_category, m.i_brand, m.s_store_name, m.d_year, m.d_moy, m.sales, m.average, before.sales AS before, after.sales AS after
FROM monthly m
JOIN monthly before ON before.i_category = m.i_category AND before.i_brand = m.i_brand
    AND before.s_store_name = m.s_store_name AND before.place = m.place - 1
JOIN monthly after ON after.i_category = m.i_category AND after.i_brand = m.i_brand
    AND after.s_store_name = m.s_store_name AND after.place = m.place + 1
WHERE m.d_year = 2001 AND m.average > 0 AND abs(m.sales - m.average) / m.average > 0.1
