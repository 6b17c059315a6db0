-- One cycle: sales and returns come and go, and every dimension changes a little.
INSERT INTO store_sales
SELECT i % 100 + 1, 1000000 + :cycle * 1000 + i, i * 97 % 731 + 1, i % 400 + 1, i % 12 + 1, i % 30, i * 1.37, i - 60
FROM generate_series(1, 120) i;
INSERT INTO web_sales
SELECT i % 100 + 1, 1000000 + :cycle * 1000 + i, i * 89 % 731 + 1, i % 400 + 1, i, i * 2.5, i - 20 FROM generate_series(1, 50) i;
INSERT INTO catalog_sales
SELECT i % 100 + 1, 1000000 + :cycle * 1000 + i, i * 83 % 731 + 1, i % 400 + 1, i, i * 1.5, i - 30 FROM generate_series(1, 50) i;
INSERT INTO store_returns
SELECT ss_item_sk, ss_ticket_number, ss_sold_date_sk, ss_customer_sk, ss_store_sk, 99.5
FROM store_sales WHERE ss_ticket_number % 301 = :cycle + 1 ON CONFLICT DO NOTHING;
UPDATE store_sales SET ss_ext_sales_price = ss_ext_sales_price * 0.5, ss_quantity = NULL WHERE ss_ticket_number % 503 = :cycle;
UPDATE store_sales SET ss_sold_date_sk = NULLIF((ss_sold_date_sk + 365) % 732, 0) WHERE ss_ticket_number % 509 = :cycle;
UPDATE web_sales SET ws_bill_customer_sk = ws_bill_customer_sk % 400 + 1 WHERE ws_order_number % 251 = :cycle;
UPDATE catalog_sales SET cs_net_profit = -cs_net_profit, cs_sold_date_sk = 400 WHERE cs_order_number % 311 = :cycle;
DELETE FROM store_returns WHERE sr_ticket_number % 41 = :cycle;
DELETE FROM store_sales WHERE ss_ticket_number % 401 = :cycle;
DELETE FROM web_sales WHERE ws_order_number % 307 = :cycle;
DELETE FROM catalog_sales WHERE cs_order_number % 293 = :cycle;
UPDATE item SET i_category = CASE i_category WHEN 'Books' THEN NULL ELSE 'Books' END, i_class = 'class 1' WHERE i_item_sk % 50 = :cycle;
UPDATE customer SET c_last_name = c_last_name || '''s', c_birth_country = NULL WHERE c_customer_sk % 101 = :cycle;
UPDATE store SET s_state = CASE s_state WHEN 'TN' THEN 'OH' ELSE 'TN' END WHERE s_store_sk = :cycle + 1;
UPDATE date_dim SET d_moy = d_moy % 12 + 1 WHERE d_date_sk % 199 = :cycle;
