SELECT id FROM customers;
SELECT idd FROM customers;
SELECT FROM customers GROUP;
UPDATE customers SET region = 'x';
