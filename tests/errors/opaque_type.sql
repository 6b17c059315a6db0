CREATE TABLE t (a int PRIMARY KEY, b nonsense);
SELECT a, b FROM t;
SELECT b, count(*) AS n FROM t GROUP BY b;
