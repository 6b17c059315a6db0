-- A part of the star schema of TPC-DS: three channels of sales, returns, and the dimensions that the queries read.
CREATE TABLE date_dim (
    d_date_sk int PRIMARY KEY,
    d_date date NOT NULL,
    d_year int NOT NULL,
    d_moy int NOT NULL,
    d_week_seq int NOT NULL,
    d_day_name text NOT NULL
);
CREATE TABLE item (
    i_item_sk int PRIMARY KEY,
    i_category text,
    i_class text,
    i_brand text NOT NULL,
    i_current_price numeric(7, 2)
);
CREATE TABLE store (
    s_store_sk int PRIMARY KEY,
    s_store_name text,
    s_state text NOT NULL
);
CREATE TABLE customer (
    c_customer_sk int PRIMARY KEY,
    c_first_name text,
    c_last_name text,
    c_birth_country text
);
CREATE TABLE store_sales (
    ss_item_sk int NOT NULL REFERENCES item,
    ss_ticket_number bigint NOT NULL,
    ss_sold_date_sk int REFERENCES date_dim,
    ss_customer_sk int REFERENCES customer,
    ss_store_sk int REFERENCES store,
    ss_quantity int,
    ss_ext_sales_price numeric(7, 2),
    ss_net_profit numeric(7, 2),
    PRIMARY KEY (ss_item_sk, ss_ticket_number)
);
CREATE TABLE store_returns (
    sr_item_sk int NOT NULL REFERENCES item,
    sr_ticket_number bigint NOT NULL,
    sr_returned_date_sk int REFERENCES date_dim,
    sr_customer_sk int REFERENCES customer,
    sr_store_sk int REFERENCES store,
    sr_return_amt numeric(7, 2),
    PRIMARY KEY (sr_item_sk, sr_ticket_number)
);
CREATE TABLE web_sales (
    ws_item_sk int NOT NULL REFERENCES item,
    ws_order_number bigint NOT NULL,
    ws_sold_date_sk int REFERENCES date_dim,
    ws_bill_customer_sk int REFERENCES customer,
    ws_quantity int,
    ws_ext_sales_price numeric(7, 2),
    ws_net_profit numeric(7, 2),
    PRIMARY KEY (ws_item_sk, ws_order_number)
);
CREATE TABLE catalog_sales (
    cs_item_sk int NOT NULL REFERENCES item,
    cs_order_number bigint NOT NULL,
    cs_sold_date_sk int REFERENCES date_dim,
    cs_bill_customer_sk int REFERENCES customer,
    cs_quantity int,
    cs_ext_sales_price numeric(7, 2),
    cs_net_profit numeric(7, 2),
    PRIMARY KEY (cs_item_sk, cs_order_number)
);
CREATE INDEX ON date_dim (d_year, d_moy);
CREATE INDEX ON date_dim (d_week_seq);
CREATE INDEX ON item (i_category, i_class);
CREATE INDEX ON store_sales (ss_sold_date_sk);
CREATE INDEX ON store_sales (ss_customer_sk);
CREATE INDEX ON store_sales (ss_store_sk);
CREATE INDEX ON store_returns (sr_customer_sk);
CREATE INDEX ON store_returns (sr_store_sk);
CREATE INDEX ON store_returns (sr_returned_date_sk);
CREATE INDEX ON web_sales (ws_sold_date_sk);
CREATE INDEX ON web_sales (ws_bill_customer_sk);
CREATE INDEX ON catalog_sales (cs_sold_date_sk);
CREATE INDEX ON catalog_sales (cs_bill_customer_sk);
