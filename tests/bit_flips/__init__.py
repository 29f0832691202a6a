"""Single bits of a shard, flipped one after the other: what becomes of them in each stage."""
