-- Dimensions of dimensions.
CREATE TABLE kind (category text PRIMARY KEY, kind_name text NOT NULL, family int NOT NULL);
INSERT INTO kind SELECT 'c' || i, 'kind ' || i, i % 7 FROM generate_series(0, 49) i;
CREATE TABLE family (family int PRIMARY KEY, family_name text NOT NULL);
INSERT INTO family SELECT i, 'family ' || i FROM generate_series(0, 6) i;
CREATE TABLE made (product int PRIMARY KEY, brand int NOT NULL);
INSERT INTO made SELECT i, i % 500 FROM generate_series(0, 9999) i;
CREATE TABLE brand (brand int PRIMARY KEY, brand_name text NOT NULL, country int NOT NULL);
INSERT INTO brand SELECT i, 'brand ' || i, i % 40 FROM generate_series(0, 499) i;
CREATE TABLE country (country int PRIMARY KEY, country_name text NOT NULL);
INSERT INTO country SELECT i, 'country ' || i FROM generate_series(0, 39) i;
