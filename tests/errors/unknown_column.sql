SELECT c.nam FROM customers c;
