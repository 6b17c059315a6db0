SELECT s.s_store_name,
    CASE WHEN (SELECT count(*) FROM store_sales WHERE ss_quantity BETWEEN 1 AND 20) > 2000
        THEN (SELECT avg(ss_ext_sales_price) FROM store_sales WHERE ss_quantity BETWEEN 1 AND 20)
        ELSE (SELECT avg(ss_net_profit) FROM store_sales WHERE ss_quantity BETWEEN 1 AND 20) END AS small,
    CASE WHEN (SELECT count(*) FROM store_sales WHERE ss_quantity > 80) > 100000
        THEN (SELECT avg(ss_ext_sales_price) FROM store_sales WHERE ss_quantity > 80)
        ELSE (SELECT avg(ss_net_profit) FROM store_sales WHERE ss_quantity > 80) END AS large
FROM store s
