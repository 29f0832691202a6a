"""What all stored forms share.

- `paths`: names of buckets, queues and tables, and paths of objects, made and parsed
- `decoding`: strict decoding of JSON, and the envelope with kind, format, path and checksum
- `checksums`: a checksum inside the bytes that it covers, and CRC-32
"""
