"""How long commands take to start: CPU time of whole processes; `make bench-startup`."""
