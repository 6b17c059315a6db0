SELECT i.i_category, i.i_class, GROUPING(i.i_category) + GROUPING(i.i_class) AS depth,
    sum(ss.ss_net_profit) / nullif(sum(ss.ss_ext_sales_price), 0) AS margin,
    rank() OVER (
        PARTITION BY GROUPING(i.i_category) + GROUPING(i.i_class),
            CASE WHEN GROUPING(i.i_class) = 0 THEN i.i_category END
        ORDER BY sum(ss.ss_net_profit) / nullif(sum(ss.ss_ext_sales_price), 0)
    ) AS place
FROM store_sales ss
JOIN date_dim d ON d.d_date_sk = ss.ss_sold_date_sk
JOIN item i ON i.i_item_sk = ss.ss_item_sk
JOIN store s ON s.s_store_sk = ss.ss_store_sk
WHERE d.d_year = 2001 AND s.s_state IN ('TN', 'OH')
GROUP BY ROLLUP (i.i_category, i.i_class)
