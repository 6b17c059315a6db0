-- From version 3 of the catalog back to 2.

UPDATE pgtrickle.pgt_catalog_version SET version = 2;
