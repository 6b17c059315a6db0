SELECT 'abc
FROM customers;
