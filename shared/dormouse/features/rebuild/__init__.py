"""A lost state made again from the footers of the shards."""
