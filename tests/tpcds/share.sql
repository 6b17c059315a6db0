SELECT i.i_item_sk, i.i_category, i.i_class, sum(ws.ws_ext_sales_price) AS revenue,
    sum(ws.ws_ext_sales_price) * 100 / sum(sum(ws.ws_ext_sales_price)) OVER (PARTITION BY i.i_class) AS share
FROM web_sales ws
JOIN item i ON i.i_item_sk = ws.ws_item_sk
JOIN date_dim d ON d.d_date_sk = ws.ws_sold_date_sk
WHERE i.i_category IN ('Books', 'Music', 'Sports') AND d.d_date BETWEEN date '2000-03-01' AND date '2000-09-01'
GROUP BY i.i_item_sk, i.i_category, i.i_class
