SELECT id FROM orders WHERE amount = placed;
