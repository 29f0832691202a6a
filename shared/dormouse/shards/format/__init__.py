"""What a shard stores besides its rows: footer, index, CRCs, Bloom filters, Parquet's own parts."""
