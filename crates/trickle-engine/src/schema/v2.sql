ALTER TABLE pgtrickle.pgt_stream_tables ADD COLUMN diamond_consistency text NOT NULL DEFAULT 'atomic'
    CHECK (diamond_consistency IN ('atomic', 'none'));
COMMENT ON COLUMN pgtrickle.pgt_stream_tables.diamond_consistency IS 'none: refreshed by itself, after the stream tables that it reads, and not with them.';
ALTER TABLE pgtrickle.pgt_stream_tables ADD COLUMN declared text;
COMMENT ON COLUMN pgtrickle.pgt_stream_tables.declared IS 'The label of the declarations that it is of (trickle apply); NULL: made by itself.';
UPDATE pgtrickle.pgt_catalog_version SET version = 2;
