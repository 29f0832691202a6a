"""The verbs of the command, a file each, and their index."""
