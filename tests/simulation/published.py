"""What readers of Iceberg find of a table, and what must then be readable, and for how long.

The metadata is read as a stranger reads it: from its JSON to the lists, the manifests, the shards
and the files of dead rows, as these were put. Its rows must be those of its version, which the
oracle knows from the state. What it names must stay until the delay is over after other metadata
took its place; what it appends must be the rows of the files that were ingested since the last.
"""

from __future__ import annotations

import io
import json
import struct
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow.parquet as pq

from dormouse.errors import NotFoundError
from dormouse.iceberg import avro
from dormouse.iceberg.metadata import VERSION
from dormouse.state.versions import PublicationRecord
from dormouse.stored.paths import shard_id_of
from tests.simulation.oracle import Oracle
from tests.simulation.rows import Row

Entry = Mapping[str, Any]


def _after(body: Entry, last: int, newest: int) -> Iterator[Entry]:
    """Yield the newest snapshot and those before it, up to the last one: what a reader that has
    followed until then reads. One that starts over has others before that.
    """
    snapshots = {each["snapshot-id"]: each for each in body["snapshots"]}
    at: int | None = newest
    while at is not None and at != last:
        yield snapshots[at]
        at = snapshots[at].get("parent-snapshot-id")


@dataclass(slots=True)
class Found:
    """Metadata that readers found until `until_ms`: the snapshot that is current in it, all that it
    lists, the version that it shows, and the objects that its publication names.
    """

    metadata: str
    snapshot_id: int
    listed: frozenset[int]
    version: int
    generation: int
    needs: frozenset[str]
    until_ms: int | None = None


@dataclass
class PublishedWatch:
    """What was published of a table so far; `content` returns what an object held when put."""

    oracle: Oracle
    content: Callable[[str], bytes]
    slack_ms: int
    found: list[Found] = field(default_factory=list)

    def see(self, record: PublicationRecord | None, now_ms: int, delay_ms: int) -> None:
        """Look at what is published now.

        Raises:
            Violation: it is not as it must be.
        """
        newest = record.newest if record is not None else None
        path = newest.metadata if newest is not None else ""
        last = self.found[-1] if self.found else None
        if last is not None and last.until_ms is None:
            if last.metadata == path:
                return
            last.until_ms = now_ms
        if newest is None or not path:
            return
        body = json.loads(self._get(path))
        current = next(
            s for s in body["snapshots"] if s["snapshot-id"] == body["current-snapshot-id"]
        )
        needs = {path} | self._needs(body, current)
        version = int(current["summary"][VERSION])
        listed = frozenset(s["snapshot-id"] for s in body["snapshots"])
        new = Found(
            path, current["snapshot-id"], listed, version, newest.generation, frozenset(needs)
        )
        self._check_rows(body, current)
        if last is not None:
            self._check_appended(body, last, new, now_ms, delay_ms)
        self._see_appending(body, new, now_ms)
        self.found.append(new)

    def check_deleted(self, path: str, now_ms: int, delay_ms: int) -> None:
        """Check that an object could be deleted just now.

        Raises:
            Violation: readers may have found a version that needs it.
        """
        for each in reversed(self.found):
            if each.until_ms is not None and now_ms - each.until_ms >= delay_ms - self.slack_ms:
                continue
            if path in each.needs:
                self.oracle.fail(
                    f"{path} was deleted, which readers of version {each.version} need, replaced "
                    + ("never" if each.until_ms is None else f"{now_ms - each.until_ms} ms ago")
                )

    def until_ms(self, snapshot_id: int) -> int | None:
        """Return when a snapshot was found as the current one for the last time; None if that is
        still so, or it never was.
        """
        return next((f.until_ms for f in reversed(self.found) if f.snapshot_id == snapshot_id), 0)

    def _see_appending(self, body: Entry, new: Found, now_ms: int) -> None:
        """Note the snapshots that a publication made and that were never current for readers: they
        are replaced as soon as they are there.
        """
        known = {snapshot_id for each in self.found for snapshot_id in each.listed}
        for snapshot in body["snapshots"]:
            number = snapshot["snapshot-id"]
            if number not in known and number != new.snapshot_id:
                needs = frozenset(self._needs(body, snapshot))
                only = frozenset({number})
                self.found.append(
                    Found("", number, only, new.version, new.generation, needs, now_ms)
                )

    def _check_rows(self, body: Entry, snapshot: Entry) -> None:
        """Check that a snapshot has the rows of its version, no more, and says how many."""
        version = int(snapshot["summary"][VERSION])
        rows = Counter(self._live_rows(body, snapshot))
        known = self.oracle.versions.get(version)
        wanted = Counter(known.stored if known is not None else rows)
        if self.oracle.kind.keeps_latest and known is not None:
            wanted = self.oracle.kind.answer(known.stored)
        if rows != wanted:
            self.oracle.fail(
                f"published version {version} lacks {list(wanted - rows)[:3]}, "
                f"and has {list(rows - wanted)[:3]} too many"
            )
        summary = snapshot["summary"]
        said = int(summary["total-records"]) - int(summary["total-position-deletes"])
        if said != rows.total():
            self.oracle.fail(f"published version {version} is said to have {said} rows: {rows}")

    def _check_appended(
        self, body: Entry, last: Found, new: Found, now_ms: int, delay_ms: int
    ) -> None:
        """Check that the snapshots that append since `last` have each row of the files since."""
        before = self.oracle.versions.get(last.version)
        after = self.oracle.versions.get(new.version)
        is_followed = last.snapshot_id in new.listed
        if before is None or after is None or not is_followed or self.oracle.kind.name != "plain":
            return
        if last.generation != new.generation:
            return
        since_ms = before.until_ms
        made = list(_after(body, last.snapshot_id, new.snapshot_id))
        is_forgotten = since_ms is not None and now_ms - since_ms >= delay_ms - self.slack_ms
        if is_forgotten and not any(s["summary"]["operation"] == "append" for s in made):
            return  # the log has not all that happened since
        found = Counter(row for s in made for row in self._appended_rows(body, s))
        files = sorted(after.taken - before.taken)
        wanted = Counter(row for f in files for row in self.oracle.dropped[f].rows or ())
        if found != wanted:
            self.oracle.fail(
                f"published version {new.version} after {last.version} appends "
                f"{list(found - wanted)[:3]} too many, and not {list(wanted - found)[:3]}"
            )

    def _appended_rows(self, body: Entry, snapshot: Entry) -> Iterator[Row]:
        if snapshot["summary"]["operation"] != "append":
            return
        for manifest in self._manifests(body, snapshot):
            if manifest["added_snapshot_id"] == snapshot["snapshot-id"]:
                for file in self._files(body, manifest):
                    yield from self._rows(self._relative(body, file["file_path"]))

    def _live_rows(self, body: Entry, snapshot: Entry) -> Iterator[Row]:
        manifests = list(self._manifests(body, snapshot))
        dead: dict[str, set[int]] = {}
        for manifest in manifests:
            for file in self._files(body, manifest) if manifest["content"] == 1 else ():
                for path, place in self._positions(body, file):
                    dead.setdefault(path, set()).add(place)
        shards = [
            file["file_path"]
            for manifest in manifests
            if manifest["content"] == 0
            for file in self._files(body, manifest)
        ]
        if len(shards) != len(set(shards)):
            self.oracle.fail(f"a snapshot lists a shard twice: {shards}")
        for uri in shards:
            gone = dead.pop(uri, set())
            rows = self._rows(self._relative(body, uri))
            yield from (row for place, row in enumerate(rows) if place not in gone)
        if dead:
            self.oracle.fail(f"rows are dead of {sorted(dead)}, which no manifest lists")

    def _positions(self, body: Entry, file: Entry) -> Iterator[tuple[str, int]]:
        content = self._get(self._relative(body, file["file_path"]))
        if file["file_format"] == "PARQUET":
            table = pq.read_table(io.BytesIO(content))
            yield from zip(table["file_path"].to_pylist(), table["pos"].to_pylist(), strict=True)
            return
        start = file["content_offset"] + 8
        blob = content[start : start - 8 + file["content_size_in_bytes"] - 4]
        yield from ((file["referenced_data_file"], place) for place in places_in(blob))

    def _needs(self, body: Entry, snapshot: Entry) -> set[str]:
        found = {self._relative(body, snapshot["manifest-list"])}
        for manifest in self._manifests(body, snapshot):
            found.add(self._relative(body, manifest["manifest_path"]))
            found |= {self._relative(body, f["file_path"]) for f in self._files(body, manifest)}
        for path in found:
            self._get(path)
        return found

    def _manifests(self, body: Entry, snapshot: Entry) -> list[Entry]:
        listed = self._get(self._relative(body, snapshot["manifest-list"]))
        return list(avro.read_container(listed)[1])

    def _files(self, body: Entry, manifest: Entry) -> list[Entry]:
        content = self._get(self._relative(body, manifest["manifest_path"]))
        return [entry["data_file"] for entry in avro.read_container(content)[1]]

    def _rows(self, path: str) -> list[Row]:
        return self.oracle.rows_of(shard_id_of(path) or "", 0)

    def _get(self, path: str) -> bytes:
        try:
            return self.content(path)
        except NotFoundError as error:
            self.oracle.fail(f"published metadata names {path}: {error}")
            raise

    def _relative(self, body: Entry, uri: str) -> str:
        root = body["location"].removesuffix(f"/{self.oracle.table_id}/iceberg")
        return uri.removeprefix(f"{root}/")


def places_in(bitmap: bytes) -> Iterator[int]:
    """Yield the positions in a 64-bit Roaring bitmap whose containers are runs."""
    (count,) = struct.unpack_from("<Q", bitmap)
    at = 8
    for _ in range(count):
        upper, cookie = struct.unpack_from("<II", bitmap, at)
        assert cookie & 0xFFFF == 12347
        containers = (cookie >> 16) + 1
        at += 8 + (containers + 7) // 8
        keys = [struct.unpack_from("<HH", bitmap, at + 4 * n)[0] for n in range(containers)]
        at += 4 * containers + (4 * containers if containers >= 4 else 0)
        for key in keys:
            (runs,) = struct.unpack_from("<H", bitmap, at)
            at += 2
            for _ in range(runs):
                start, more = struct.unpack_from("<HH", bitmap, at)
                at += 4
                base = (upper << 32) + (key << 16) + start
                yield from range(base, base + more + 1)
