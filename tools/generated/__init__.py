"""The pages of docs/ that are generated from the code and the template: `make docs`."""
