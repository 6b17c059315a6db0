-- One product has a tenth of the rows.
CREATE TABLE skew AS SELECT id, region, category, amount, score, CASE WHEN id % 10 = 0 THEN 0 ELSE product END AS product FROM src;
ALTER TABLE skew ADD PRIMARY KEY (id);
CREATE INDEX ON skew (product);
