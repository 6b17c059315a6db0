SELECT count(*) AS customers
FROM (
    SELECT c_last_name, c_first_name, d_week_seq
    FROM store_sales JOIN date_dim ON d_date_sk = ss_sold_date_sk JOIN customer ON c_customer_sk = ss_customer_sk
    WHERE d_year = 2000
    INTERSECT
    SELECT c_last_name, c_first_name, d_week_seq
    FROM catalog_sales JOIN date_dim ON d_date_sk = cs_sold_date_sk JOIN customer ON c_customer_sk = cs_bill_customer_sk
    WHERE d_year = 2000
    INTERSECT
    SELECT c_last_name, c_first_name, d_week_seq
    FROM web_sales JOIN date_dim ON d_date_sk = ws_sold_date_sk JOIN customer ON c_customer_sk = ws_bill_customer_sk
    WHERE d_year = 2000
) x
