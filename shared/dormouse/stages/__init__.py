"""One module per stage of the flow; a stage takes a message and returns messages."""
