INSERT INTO customers SELECT id + 1000, name, region FROM customers;
SELECT id FROM customers;
