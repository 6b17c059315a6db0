-- The catalog learns what stands apart (diamond_consistency), and so does alter_stream_table.

DROP FUNCTION pgtrickle.alter_stream_table(text, text, text, text, text);
CREATE FUNCTION pgtrickle.alter_stream_table(
    "name" TEXT,
    "query" TEXT DEFAULT NULL,
    "schedule" TEXT DEFAULT NULL,
    "refresh_mode" TEXT DEFAULT NULL,
    "status" TEXT DEFAULT NULL,
    "diamond_consistency" TEXT DEFAULT NULL
) RETURNS void
LANGUAGE c
AS 'MODULE_PATHNAME', 'alter_stream_table_apart_wrapper';

SELECT pgtrickle.install();
