"""The registry of tables as items of DynamoDB: tables, their copies, tombstones."""
