//! Descriptions of the SQL API's functions, as `\df+` shows them.

/// Name and description of each function.
pub(crate) const COMMENTS: [(&str, &str); 33] = [
    (
        "alter_stream_table",
        "Gives a stream table another query, schedule, mode, status or consistency; NULL leaves it.",
    ),
    ("change_buffer_sizes", "The buffers of changes, one for each source."),
    ("copy_handler", "Runs the triggers that copy what a statement changed into a change buffer."),
    ("create_or_replace_stream_table", "Makes a stream table, or gives the one of this name the query."),
    ("create_stream_table", "Makes a table that is kept equal to a query; its pgt_id."),
    ("create_stream_table_if_not_exists", "Makes a stream table, where there is none of this name."),
    (
        "dependency_tree",
        "All stream tables with what they read and what reads them, each after those that it reads.",
    ),
    ("drop_stream_table", "Drops a stream table, and with cascade what depends on it."),
    (
        "explain_delta",
        "The statement that applies the changes of all sources of a stream table, or of a query.",
    ),
    (
        "explain_refresh_mode",
        "The mode in force of a stream table, the one that was asked for, and why they differ.",
    ),
    ("explain_st", "The plan of a stream table, and of its delta."),
    ("follow_alters", "Called by an event trigger, after what stream tables read was altered."),
    (
        "follow_drops",
        "Called by an event trigger, after what stream tables read, or one of them, was dropped.",
    ),
    ("get_refresh_history", "The newest refreshes of a stream table, newest first."),
    ("get_staleness", "Milliseconds since what a stream table shows was all that there was."),
    ("health_check", "What is in the way, and what to do about it."),
    ("install", "Called by CREATE EXTENSION."),
    (
        "is_at_work",
        "Called by event triggers: whether trickle itself alters and drops what they are told of.",
    ),
    ("last_command", "The number of the last command of this transaction."),
    ("pause_scheduler", "Takes stream tables, all by default, out of the schedule."),
    ("pg_trickle_hash", "A hash of a text (xxHash64, seed 0)."),
    ("pg_trickle_hash_multi", "A hash of texts, in which NULL is another than the empty text."),
    ("pgt_status", "How all stream tables stand."),
    (
        "rebuild_cdc_triggers",
        "Makes capture triggers anew that are broken or of another kind than the settings say.",
    ),
    ("refresh_stream_table", "Brings a stream table, and what it reads, up to date."),
    ("rehome", "Finds the tables of a database again that was restored from a dump."),
    (
        "release_catalog",
        "Leaves the catalog to the program trickle, so that DROP EXTENSION keeps all stream tables.",
    ),
    ("repair_stream_table", "Makes what a stream table stands on anew, and computes it anew."),
    ("resume_scheduler", "Puts stream tables, all by default, back on schedule."),
    ("resume_stream_table", "Lets a stream table that was suspended be refreshed again."),
    (
        "st_auto_threshold",
        "The share of changed rows from which on a stream table is expected to be computed anew for less.",
    ),
    ("validate_query", "Whether a query can be kept incrementally; if not, what stands in the way."),
    ("version", "The version of the extension's library."),
];
