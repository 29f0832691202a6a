"""What engines ask besides files: the protocol of catalogs, types of Glue, views in SQL."""
