"""Object storage, the ingest bucket and the state store on S3.

- `storage`: the data root and the sources of ingests, as the stages use them.
- `ingest_bucket`: the upload of files, for the client.
- `downloads`: a dropped file as a local one.
- `uploads`: a local file becomes an object, in one request or in parts while it is written.
- `multipart`: the requests of a multipart upload.
- `ranges`: an object as a seekable file, read by ranged GETs.
- `versions`: noncurrent versions of deleted or replaced objects.
- `state_store`: the state store whose blobs are objects.
"""
