"""Ingest dropped files into sorted shards, each file exactly once.

- `batch_files`: turn notifications of dropped files into ingest jobs; `batching` is its policy.
- `ingest`: run a job: write its files as shards and commit them with their sources.
- `isolate_files`: run a job as functions do, and isolate the file that crashes them.
- `placement`: choose between a shard for each leaf and shards that span leaves.
- `known_sources`: look up which sources were ingested or refused before.
- `seal_sources`: move old sources out of the state into segments; `sealing` is its policy.
- `request`: the request ``ingest_files``, for objects that the bucket already holds.
"""
