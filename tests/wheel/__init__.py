"""The built wheel in empty environments: `make test-wheel`."""
