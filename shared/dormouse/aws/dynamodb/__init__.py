"""The registry of tables and the tracker of jobs, as DynamoDB items."""
