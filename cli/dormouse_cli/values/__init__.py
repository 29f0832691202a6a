"""Arguments as people write them, and rows and properties as they are printed."""
