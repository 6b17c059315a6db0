CREATE TABLE customers (id bigint PRIMARY KEY, name text NOT NULL, region text);
CREATE TABLE orders (
    id bigint PRIMARY KEY,
    customer_id bigint NOT NULL REFERENCES customers,
    amount numeric(10,2),
    placed date
);
CREATE INDEX ON orders (customer_id);
CREATE TABLE log (at timestamptz, message text);
