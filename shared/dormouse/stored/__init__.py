"""What all stored forms share: object names, checksums, strict decoding, the JSON envelope.

- `names`: names of buckets, queues and DynamoDB tables
- `paths`: paths of objects in the data bucket, made and parsed
- `json_objects`: small JSON objects with kind, format number, path and checksum
- `decoding`: strict JSON decoding, and `raise_corrupt`
- `checksums`: a checksum inside the bytes that it covers
"""
