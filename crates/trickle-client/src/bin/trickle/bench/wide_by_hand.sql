WITH touched AS (
    SELECT DISTINCT id FROM wide_changes
), gone AS (
    DELETE FROM by_hand h USING touched t WHERE h.id = t.id AND NOT EXISTS (SELECT FROM wide s WHERE s.id = t.id)
)
INSERT INTO by_hand SELECT s.* FROM wide s JOIN touched USING (id)
ON CONFLICT (id) DO UPDATE SET (
    region, category, amount, score, product, i1, i2, i3, i4, i5, i6, i7, i8, i9, i10, i11, i12, i13, i14, i15, i16,
    i17, i18, t1, t2, t3, t4, t5, t6, t7, t8, t9, t10, t11, t12, t13, t14, t15, t16, t17, t18, n1, n2, n3, n4, n5,
    n6, n7, n8, n9, d1, d2, d3, d4, d5, d6, d7, d8, d9
) = (
    excluded.region, excluded.category, excluded.amount, excluded.score, excluded.product, excluded.i1, excluded.i2,
    excluded.i3, excluded.i4, excluded.i5, excluded.i6, excluded.i7, excluded.i8, excluded.i9, excluded.i10,
    excluded.i11, excluded.i12, excluded.i13, excluded.i14, excluded.i15, excluded.i16, excluded.i17, excluded.i18,
    excluded.t1, excluded.t2, excluded.t3, excluded.t4, excluded.t5, excluded.t6, excluded.t7, excluded.t8,
    excluded.t9, excluded.t10, excluded.t11, excluded.t12, excluded.t13, excluded.t14, excluded.t15, excluded.t16,
    excluded.t17, excluded.t18, excluded.n1, excluded.n2, excluded.n3, excluded.n4, excluded.n5, excluded.n6,
    excluded.n7, excluded.n8, excluded.n9, excluded.d1, excluded.d2, excluded.d3, excluded.d4, excluded.d5,
    excluded.d6, excluded.d7, excluded.d8, excluded.d9
)
