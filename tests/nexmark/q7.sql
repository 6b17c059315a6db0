SELECT b.auction, b.price, b.bidder, b.date_time
FROM bid b
JOIN (
    SELECT date_bin('10 seconds', date_time, '2024-01-01') AS starts, max(price) AS price
    FROM bid
    GROUP BY 1
) w ON date_bin('10 seconds', b.date_time, '2024-01-01') = w.starts AND b.price = w.price
