-- Sixty columns, the first of them those of src.
CREATE TABLE wide (
    id int PRIMARY KEY, region text NOT NULL, category text NOT NULL, amount numeric(12,2) NOT NULL, score int NOT NULL,
    product int NOT NULL,
    i1 int DEFAULT 1, i2 int DEFAULT 2, i3 int DEFAULT 3, i4 int DEFAULT 4, i5 int DEFAULT 5, i6 int DEFAULT 6,
    i7 int DEFAULT 7, i8 int DEFAULT 8, i9 int DEFAULT 9, i10 int DEFAULT 10, i11 int DEFAULT 11, i12 int DEFAULT 12,
    i13 int DEFAULT 13, i14 int DEFAULT 14, i15 int DEFAULT 15, i16 int DEFAULT 16, i17 int DEFAULT 17, i18 int DEFAULT 18,
    t1 text DEFAULT 'one', t2 text DEFAULT 'two', t3 text DEFAULT 'three', t4 text DEFAULT 'four', t5 text DEFAULT 'five',
    t6 text DEFAULT 'six', t7 text DEFAULT 'seven', t8 text DEFAULT 'eight', t9 text DEFAULT 'nine', t10 text DEFAULT 'ten',
    t11 text, t12 text, t13 text, t14 text, t15 text, t16 text, t17 text, t18 text,
    n1 numeric DEFAULT 1.5, n2 numeric DEFAULT 2.5, n3 numeric DEFAULT 3.5, n4 numeric DEFAULT 4.5, n5 numeric DEFAULT 5.5,
    n6 numeric DEFAULT 6.5, n7 numeric DEFAULT 7.5, n8 numeric DEFAULT 8.5, n9 numeric DEFAULT 9.5,
    d1 timestamptz DEFAULT '2026-01-01 00:00+00', d2 timestamptz DEFAULT '2026-01-02 00:00+00',
    d3 timestamptz DEFAULT '2026-01-03 00:00+00', d4 timestamptz DEFAULT '2026-01-04 00:00+00',
    d5 timestamptz DEFAULT '2026-01-05 00:00+00', d6 timestamptz DEFAULT '2026-01-06 00:00+00',
    d7 timestamptz DEFAULT '2026-01-07 00:00+00', d8 timestamptz DEFAULT '2026-01-08 00:00+00',
    d9 timestamptz DEFAULT '2026-01-09 00:00+00'
);
INSERT INTO wide (id, region, category, amount, score, product) SELECT id, region, category, amount, score, product FROM src;
