SELECT initcapp(name) AS name FROM customers;
