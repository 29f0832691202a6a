"""The `dormouse` command: everything a person does with an instance, and the stack on a laptop."""
