"""What rows cost on AWS, by the memory of the functions: `make bench-cost`."""
