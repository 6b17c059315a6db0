-- mode: full
SELECT id, random() AS lot FROM customers;
