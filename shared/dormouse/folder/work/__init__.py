"""Work of an instance in a folder: messages run through the stages, the schedule, Spark."""
