WITH returned AS (
    SELECT sr_customer_sk AS customer, sr_store_sk AS store, sum(sr_return_amt) AS total
    FROM store_returns JOIN date_dim ON d_date_sk = sr_returned_date_sk
    WHERE d_year = 2000
    GROUP BY sr_customer_sk, sr_store_sk
)
SELECT c.c_customer_sk, r.store, r.total
FROM returned r
JOIN store s ON s.s_store_sk = r.store AND s.s_state = 'TN'
JOIN customer c ON c.c_customer_sk = r.customer
WHERE r.total > (SELECT avg(same.total) * 1.2 FROM returned same WHERE same.store = r.store)
