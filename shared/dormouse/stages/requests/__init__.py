"""What administrators ask for, one module for each request; `administer` runs them."""
