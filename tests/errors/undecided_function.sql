CREATE EXTENSION postgis;
CREATE TABLE p (id int PRIMARY KEY, g geometry(Point, 4326));
SELECT id, st_x(g) AS x FROM p;
SELECT id, st_novelty(g) AS x FROM p;
SELECT id, initcapp(name) AS x FROM customers;
