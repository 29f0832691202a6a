"""What is done to sorted rows: sorting, merging, filters, predicates, row rules."""
