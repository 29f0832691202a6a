"""Values of ingested files, parsed and cast to columns of the table, exactly."""
