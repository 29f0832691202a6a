"""ingest_files: what lies in the ingest bucket already, anywhere in it, is ingested into a table.

No sweep looks outside the folders of tables, so a request that is repeated is done again: the state
knows what is ingested.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from dormouse.errors import InvalidRequestError, NotFoundError
from dormouse.features.ingest.batch_files import ingest_message
from dormouse.features.ingest.batching import batches, largest_batches
from dormouse.features.ingest.known_sources import look_up
from dormouse.features.requests.resolve_table import living
from dormouse.features.requests.work import Begun, Files
from dormouse.messages import IngestJob
from dormouse.model.sources import Source
from dormouse.ports import Services
from dormouse.replies import Counts
from dormouse.requests import IngestFiles

MAX_FILES = 100_000
"""A request holds all its files in memory, some 60 MB for so many."""
NAMED = 10
"""How many missing keys are named; there are often many, of one mistake."""


def ingest_files(services: Services, request: IngestFiles) -> Begun:
    """Have the files ingested that lie under all keys, save those ingested already.

    Raises:
        NotFoundError: there is nothing under some key, no such table, or it is being deleted. Then
            nothing is ingested.
        InvalidRequestError: no key is given, or there are too many files.
    """
    table = living(services, request)
    found = _found(services, request.keys)
    again = request.request_id if request.again else ""
    sources = [replace(source, again=again) for source in found.values()]
    fresh = look_up(services, table, sources).fresh(sources)
    asked = request.spark or None
    jobs = largest_batches(fresh) if asked else batches(fresh, table.properties)
    messages = [ingest_message(table, table.generation, sources, asked) for sources in jobs]
    counts = Counts(files=len(sources), known=len(sources) - len(fresh))
    if not messages:
        return Begun(counts=counts)
    sent = (message.message for message in messages)
    work = Files(tuple(job for job in sent if isinstance(job, IngestJob)))
    return Begun(messages, work, counts)


def _found(services: Services, keys: tuple[str, ...]) -> dict[str, Source]:
    """Return what lies under keys, by source id."""
    if not keys or not all(key.strip("/") for key in keys):
        raise InvalidRequestError(
            "say which files to ingest", hint="name objects of the ingest bucket, or folders of it"
        )
    found: dict[str, Source] = {}
    missing = []
    for key in dict.fromkeys(keys):
        before = len(found)
        anything = False
        for source in _under(services, key):
            anything = True
            found[source.id] = source
            if len(found) > MAX_FILES:
                raise InvalidRequestError(
                    f"there are more than {MAX_FILES:,} files under the keys, {before:,} of them "
                    f"before {key!r}",
                    hint="ask for smaller folders, each in a request of its own",
                )
        if not anything:
            missing.append(key)
    if missing:
        more = f" and {len(missing) - NAMED} more" if len(missing) > NAMED else ""
        raise NotFoundError(
            f"the ingest bucket has no {', '.join(map(repr, missing[:NAMED]))}{more}",
            hint="keys are those of objects, or of folders, from the top of the bucket",
        )
    return found


def _under(services: Services, key: str) -> Iterator[Source]:
    """Return the object of a key, if there is one, and those in the folder of that name."""
    first = next(services.sources.list(key, since_ms=0), None)
    if first is not None and first.key == key:
        yield first
    yield from services.sources.list(key.rstrip("/") + "/", since_ms=0)
