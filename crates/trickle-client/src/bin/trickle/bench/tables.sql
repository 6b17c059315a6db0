CREATE TABLE dim (region text PRIMARY KEY, region_name text NOT NULL);
INSERT INTO dim SELECT 'r' || i, 'region ' || i / 2 FROM generate_series(0, 9) i;

CREATE TABLE product (product int PRIMARY KEY, label text NOT NULL, listed boolean NOT NULL);
INSERT INTO product SELECT i, 'product ' || i, i % 7 <> 0 FROM generate_series(0, 9999) i;

CREATE TABLE src (
    id int PRIMARY KEY, region text NOT NULL, category text NOT NULL, amount numeric(12,2) NOT NULL, score int NOT NULL,
    product int NOT NULL
);
INSERT INTO src SELECT i, 'r' || i % 10, 'c' || i % 50, (i * 7919::bigint % 1000000) / 100.0, i % 100, i * 31::bigint % 10000
FROM generate_series(1, :rows) i;
CREATE INDEX ON src (product, amount DESC, id);
CREATE INDEX ON src (amount DESC, id);

CREATE TABLE product_changes (w smallint NOT NULL, product int, label text, listed boolean);

CREATE FUNCTION capture() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP <> 'INSERT' THEN
        EXECUTE format('INSERT INTO %I SELECT -1, * FROM gone', TG_TABLE_NAME || '_changes');
    END IF;
    IF TG_OP <> 'DELETE' THEN
        EXECUTE format('INSERT INTO %I SELECT 1, * FROM come', TG_TABLE_NAME || '_changes');
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER changed AFTER UPDATE ON product REFERENCING OLD TABLE AS gone NEW TABLE AS come
    FOR EACH STATEMENT EXECUTE FUNCTION capture();
