CREATE TABLE t (a int, b int, UNIQUE (c));
SELECT id FROM customers;
