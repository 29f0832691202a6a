"""A key in each form that people, messages, Python and files write it in."""
