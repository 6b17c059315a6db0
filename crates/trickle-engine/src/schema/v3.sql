-- Catalog, version 3: no role gains rights through a stream table.

UPDATE pgtrickle.pgt_catalog_version SET version = 3;
