WITH weeks AS (
    SELECT d.d_week_seq,
        sum(CASE WHEN d.d_day_name = 'Sunday' THEN x.price END) AS sunday,
        sum(x.price) FILTER (WHERE d.d_day_name = 'Wednesday') AS wednesday,
        sum(CASE d.d_day_name WHEN 'Saturday' THEN x.price ELSE 0 END) AS saturday
    FROM (
        SELECT ws_sold_date_sk AS day, ws_ext_sales_price AS price FROM web_sales
        UNION ALL
        SELECT cs_sold_date_sk, cs_ext_sales_price FROM catalog_sales
    ) x JOIN date_dim d ON d.d_date_sk = x.day
    GROUP BY d.d_week_seq
)
SELECT y.d_week_seq, round(y.sunday / z.sunday, 2) AS sunday, round(y.wednesday / z.wednesday, 2) AS wednesday,
    round(y.saturday / nullif(z.saturday, 0), 2) AS saturday
FROM weeks y JOIN weeks z ON z.d_week_seq = y.d_week_seq + 52
WHERE z.sunday <> 0 AND z.wednesday <> 0
