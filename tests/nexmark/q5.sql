WITH counted AS (
    SELECT b.auction, w.starts, count(*) AS bids
    FROM bid b,
        generate_series(
            date_bin('2 seconds', b.date_time, '2024-01-01') - interval '8 seconds',
            date_bin('2 seconds', b.date_time, '2024-01-01'),
            interval '2 seconds'
        ) AS w (starts)
    GROUP BY b.auction, w.starts
)
SELECT c.auction, c.starts, c.bids
FROM counted c JOIN (SELECT starts, max(bids) AS most FROM counted GROUP BY starts) m
    ON c.starts = m.starts AND c.bids >= m.most
