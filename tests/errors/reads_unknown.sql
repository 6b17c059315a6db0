CREATE MATERIALIZED VIEW lots AS SELECT id, random() AS lot FROM customers;
SELECT id FROM lots WHERE lot > 0.5;
