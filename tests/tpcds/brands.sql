SELECT d.d_year, i.i_brand, sum(ss.ss_ext_sales_price) AS sales
FROM date_dim d
JOIN store_sales ss ON ss.ss_sold_date_sk = d.d_date_sk
JOIN item i ON i.i_item_sk = ss.ss_item_sk
WHERE d.d_moy = 11
GROUP BY d.d_year, i.i_brand
ORDER BY d.d_year, sales DESC, i.i_brand
LIMIT 10
