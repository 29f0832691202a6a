"""Makes the shards of a table those of an earlier time, in a data bucket that has versions.

``python tools/restore.py BUCKET TABLE_ID TIME [--dry-run]``, with a time as
``2026-11-22T10:00:00+00:00``. `dormouse rebuild` then makes the state from the shards;
docs/operations.md says when, and what that cannot do. What was deleted since is brought back by
deleting the mark of its deletion, what was replaced by deleting what replaced it; what was put
since is deleted, and kept by the bucket as any other. It may be run again. The bucket is to belong
to the account of the caller.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import boto3

from dormouse.aws.clients import client

FOLDERS = ("data", "run-markers", "state/sources")
"""What a rebuild reads."""


@dataclass(frozen=True, slots=True)
class Version:
    """One version of an object, or the mark of its deletion; the newest is `latest`."""

    key: str
    id: str
    modified: datetime
    is_object: bool
    latest: bool


@dataclass(frozen=True, slots=True)
class Step:
    """A deletion that brings one object nearer to the time: of a version, or of what is there."""

    key: str
    version: str = ""


def steps(versions: Sequence[Version], time: datetime) -> Iterator[Step]:
    """Return what makes one object what it was at a time, from all its versions, newest first."""
    later = [version for version in versions if version.modified > time]
    if not later:
        return
    earlier = versions[len(later) :]
    if earlier and earlier[0].is_object:
        yield from (Step(version.key, version.id) for version in later)
    elif later[0].is_object:
        yield Step(later[0].key)


def versions_below(s3: Any, bucket: str, prefix: str) -> Iterator[list[Version]]:
    """Return all versions of each object below a prefix, newest first."""
    pages = s3.get_paginator("list_object_versions").paginate(Bucket=bucket, Prefix=prefix)
    by_key: dict[str, list[Version]] = {}
    for page in pages:
        for kind in ("Versions", "DeleteMarkers"):
            for each in page.get(kind, ()):
                version = Version(
                    each["Key"],
                    each["VersionId"],
                    each["LastModified"],
                    kind == "Versions",
                    each["IsLatest"],
                )
                by_key.setdefault(version.key, []).append(version)
    for versions in by_key.values():
        # S3 counts whole seconds; a name never comes again, so its mark is newer than its object.
        yield sorted(versions, key=lambda v: (v.latest, v.modified, not v.is_object), reverse=True)


def restore(s3: Any, bucket: str, table_id: str, time: datetime, *, dry_run: bool = False) -> int:
    """Make the objects of a table those of a time; return how many change."""
    changed = 0
    for folder in FOLDERS:
        for versions in versions_below(s3, bucket, f"{table_id}/{folder}/"):
            todo = list(steps(versions, time))
            changed += bool(todo)
            for step in todo:
                named = {"VersionId": step.version} if step.version else {}
                done = "brought back" if named else "deleted"
                print("would be " * dry_run + done, f"s3://{bucket}/{step.key}")
                if not dry_run:
                    s3.delete_object(Bucket=bucket, Key=step.key, **named)
    return changed


def main() -> None:
    """Run what the arguments say."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("bucket")
    parser.add_argument("table_id")
    parser.add_argument("time", type=datetime.fromisoformat)
    parser.add_argument("--dry-run", action="store_true", help="only show what would change")
    options = parser.parse_args()
    if options.time.tzinfo is None:
        parser.error("the time has no zone; end it with +00:00 for UTC")
    s3 = client("s3", bucket_owner=boto3.client("sts").get_caller_identity()["Account"])
    if s3.get_bucket_versioning(Bucket=options.bucket).get("Status") != "Enabled":
        parser.error(f"{options.bucket} has no versions, so nothing of it can be brought back")
    changed = restore(s3, options.bucket, options.table_id, options.time, dry_run=options.dry_run)
    print(f"{changed} objects {'would change' if options.dry_run else 'changed'}")


if __name__ == "__main__":
    main()
