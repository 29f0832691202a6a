"""The log of a table: its pages, its tail, its compaction, its garbage."""
