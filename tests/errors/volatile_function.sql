SELECT id, random() AS lot FROM customers;
