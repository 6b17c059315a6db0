SELECT id, amount::nummeric FROM orders;
