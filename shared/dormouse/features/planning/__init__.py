"""Which compactions and splits of a table are due, and the jobs assigned for them."""
