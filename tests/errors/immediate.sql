-- mode: immediate
SELECT id FROM customers;
