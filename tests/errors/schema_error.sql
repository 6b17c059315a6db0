CREATE TABLE t (a int, b nonsense);
SELECT id FROM customers;
