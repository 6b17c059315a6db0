SELECT ss_customer_sk, d_moy
FROM store_sales JOIN date_dim ON d_date_sk = ss_sold_date_sk
WHERE d_year = 2001
EXCEPT
SELECT ws_bill_customer_sk, d_moy
FROM web_sales JOIN date_dim ON d_date_sk = ws_sold_date_sk
WHERE d_year = 2001
EXCEPT
SELECT cs_bill_customer_sk, d_moy
FROM catalog_sales JOIN date_dim ON d_date_sk = cs_sold_date_sk
WHERE d_year = 2001
