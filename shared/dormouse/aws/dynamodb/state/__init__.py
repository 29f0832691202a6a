"""States of tables as items of DynamoDB: head, log pages, pins, and blobs in items."""
