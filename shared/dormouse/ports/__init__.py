"""The services that stages use, as protocols. Adapters are in `aws`, `folder` and tests."""
