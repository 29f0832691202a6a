"""A local S3 that takes its time and counts what it is asked."""
