WITH sold AS (
    SELECT 'store' AS channel, ss_store_sk AS place, sum(ss_ext_sales_price) AS sales, sum(ss_net_profit) AS profit
    FROM store_sales JOIN date_dim ON d_date_sk = ss_sold_date_sk
    WHERE d_year = 2000
    GROUP BY ss_store_sk
), returned AS (
    SELECT sr_store_sk AS place, sum(sr_return_amt) AS amount
    FROM store_returns JOIN date_dim ON d_date_sk = sr_returned_date_sk
    WHERE d_year = 2000
    GROUP BY sr_store_sk
)
SELECT channel, place, sum(sales) AS sales, sum(returns) AS returns, sum(profit) AS profit
FROM (
    SELECT s.channel, s.place, s.sales, coalesce(r.amount, 0) AS returns, s.profit - coalesce(r.amount, 0) AS profit
    FROM sold s LEFT JOIN returned r ON r.place = s.place
    UNION ALL
    SELECT 'web', NULL, sum(ws_ext_sales_price), 0, sum(ws_net_profit)
    FROM web_sales JOIN date_dim ON d_date_sk = ws_sold_date_sk
    WHERE d_year = 2000
    UNION ALL
    SELECT 'catalog', NULL, sum(cs_ext_sales_price), 0, sum(cs_net_profit)
    FROM catalog_sales JOIN date_dim ON d_date_sk = cs_sold_date_sk
    WHERE d_year = 2000
) x
GROUP BY ROLLUP (channel, place)
