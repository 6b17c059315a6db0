SELEC id FROM orders;
