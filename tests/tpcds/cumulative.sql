WITH web AS (
    SELECT ws_item_sk AS item, d_moy AS month, sum(sum(ws_ext_sales_price)) OVER (PARTITION BY ws_item_sk ORDER BY d_moy) AS total
    FROM web_sales JOIN date_dim ON d_date_sk = ws_sold_date_sk
    WHERE d_year = 2000
    GROUP BY ws_item_sk, d_moy
), shop AS (
    SELECT ss_item_sk AS item, d_moy AS month, sum(sum(ss_ext_sales_price)) OVER (PARTITION BY ss_item_sk ORDER BY d_moy) AS total
    FROM store_sales JOIN date_dim ON d_date_sk = ss_sold_date_sk
    WHERE d_year = 2000
    GROUP BY ss_item_sk, d_moy
)
SELECT item, month, web, shop, web_so_far, shop_so_far
FROM (
    SELECT item, month, web, shop, max(web) OVER so_far AS web_so_far, max(shop) OVER so_far AS shop_so_far
    FROM (
        SELECT coalesce(web.item, shop.item) AS item, coalesce(web.month, shop.month) AS month, web.total AS web, shop.total AS shop
        FROM web FULL JOIN shop ON web.item = shop.item AND web.month = shop.month
    ) x
    WINDOW so_far AS (PARTITION BY item ORDER BY month ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)
) y
WHERE web_so_far > shop_so_far
