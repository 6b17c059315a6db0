-- Two years of days; :scale times 10,000 store sales and less of the rest. What the specification lets be NULL sometimes is.
INSERT INTO date_dim
SELECT i, d, extract(year FROM d), extract(month FROM d), (i - 1) / 7, to_char(d, 'FMDay')
FROM generate_series(1, 731) i, LATERAL (SELECT date '2000-01-01' + i - 1) AS days (d);
INSERT INTO item
SELECT i, (ARRAY['Books', 'Music', 'Shoes', 'Sports', NULL])[i % 5 + 1], 'class ' || i % 3, 'brand ' || i % 19, i % 83 + 0.99
FROM generate_series(1, 100 * :scale) i;
INSERT INTO store SELECT i, 'store ' || i, (ARRAY['TN', 'OH', 'TX'])[i % 3 + 1] FROM generate_series(1, 12) i;
INSERT INTO customer
SELECT i, 'first ' || i % 41, nullif('last ' || i % 57, 'last 0'), 'country ' || i % 7 FROM generate_series(1, 400 * :scale) i;
INSERT INTO store_sales
SELECT i * 31 % (100 * :scale) + 1, i, nullif(i * 7919 % 732, 0), nullif(i * 104729 % (401 * :scale), 0) % (400 * :scale) + 1,
    nullif(i % 13, 0), nullif(i % 101, 0), (i * 48271 % 19997) / 100.0, (i * 48271 % 19997 - 9000) / 100.0
FROM generate_series(1::bigint, 10000 * :scale) i;
INSERT INTO store_returns
SELECT ss_item_sk, ss_ticket_number, least(ss_sold_date_sk + 20, 731), ss_customer_sk, ss_store_sk, ss_ext_sales_price / 2
FROM store_sales WHERE ss_ticket_number % 11 = 0;
INSERT INTO web_sales
SELECT i * 37 % (100 * :scale) + 1, i, nullif(i * 3571 % 732, 0), nullif(i * 7907 % (401 * :scale), 0) % (400 * :scale) + 1,
    i % 50 + 1, (i * 40503 % 19997) / 100.0, (i * 40503 % 19997 - 8000) / 100.0
FROM generate_series(1::bigint, 4000 * :scale) i;
INSERT INTO catalog_sales
SELECT i * 41 % (100 * :scale) + 1, i, nullif(i * 5417 % 732, 0), nullif(i * 6151 % (401 * :scale), 0) % (400 * :scale) + 1,
    i % 70 + 1, (i * 30269 % 19997) / 100.0, (i * 30269 % 19997 - 8500) / 100.0
FROM generate_series(1::bigint, 5000 * :scale) i;
