"""How the jobs of a request stand: which have ended, and how.

What is stored decides: a record of the tracker may be lost, or be that of an earlier run, so it is
only asked for what the state of the table does not say. What cannot be told is no success. A job
that failed and will be tried again has not ended; one that nobody seems to try any more is called
unfinished, never failed, for a person may send it back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

from dormouse.features.administration.answering import keep_left, kept_left
from dormouse.features.export.manifests import manifest_at
from dormouse.features.export.stored import kept_export
from dormouse.features.garbage.collect_garbage import garbage_job_id, together
from dormouse.features.ingest.known_sources import look_up
from dormouse.features.planning.splitting import fewest_rows
from dormouse.features.purge.stored import purge_request
from dormouse.features.requests.work import Compactions, Export, Files, Garbage, Purge, Splits, Work
from dormouse.jobs.retrying import MAX_RECEIVES, backoff_ms
from dormouse.jobs.tracking import ALREADY_INGESTED, OUTCOME_UNKNOWN, is_isolated
from dormouse.messages import IngestJob
from dormouse.model.sources import Source, job_id_of
from dormouse.model.state import TableState
from dormouse.ports import JobRecord, Services
from dormouse.replies import Counts, JobState
from dormouse.stored.names import data_prefix, run_of_shard, split_job_id
from dormouse.tables.table import Table

SILENT_MS = 12 * 60 * 60 * 1000
"""No run takes so long, not Spark's either: one that began earlier and told no more has died."""
TELLING_MS = 20 * 60 * 1000
"""After so long, a run that committed has told so, or died before it could."""
LOST_MS = 2 * 60 * 60 * 1000
"""After so long, the message of a run that died has come again and found what was left of it."""
EMPTIED = "the table was emptied since"
UNKNOWN = "it is over, and nothing tells how it ended"


@dataclass(frozen=True, slots=True)
class End:
    """How a job stands, or a file of one. `state` is empty if all of it was done.

    While `is_pending`, it is worth while to wait.
    """

    kind: str
    id: str
    state: JobState | None = None
    reason: str = ""
    is_pending: bool = False
    counts: Counts = Counts()

    @property
    def total(self) -> Counts:
        """What it adds to the counts of its request; a file of a job is no job."""
        if self.kind == "file":
            return self.counts
        failed, unfinished = int(self.state == "failed"), int(self.state == "unfinished")
        return self.counts + Counts(failed=failed, unfinished=unfinished)


def ends(services: Services, table: Table, key: str, work: Work, asked_ms: int) -> Iterator[End]:
    """Return how each job stands, those first of which the state says that they are pending."""
    look = _Look(services, table, key, asked_ms, services.clock.now_ms())
    match work:
        case Compactions():
            return _compactions(look, work)
        case Files():
            return _files(look, work)
        case Export():
            return _export(look, work)
        case Purge():
            return _purge(look, work)
        case Splits():
            return _splits(look, work)
        case Garbage():
            return _garbage(look, work)


@dataclass(frozen=True)
class _Look:
    """One look at the work of a request."""

    services: Services
    table: Table
    key: str
    asked_ms: int
    now_ms: int

    @cached_property
    def state(self) -> TableState:
        return self.services.store(self.table).current()

    @cached_property
    def runs(self) -> set[str]:
        """The runs that wrote the shards which the table has, or had until a while ago."""
        return {run_of_shard(shard)[0] for shard in self.state.shards}

    def record(self, job_id: str) -> JobRecord | None:
        """Return what was told of a job last."""
        return self.services.tracker.get(self.table.id, job_id)

    def record_since(self, job_id: str) -> JobRecord | None:
        """Return what was told since the request of a job whose id an earlier one may have had."""
        found = self.record(job_id)
        return found if found is not None and found.updated_ms >= self.asked_ms else None

    def pending(self, kind: str, job_id: str, told: JobRecord | None) -> End:
        """Return that a job is not done; it is no use to wait where it was tried so often."""
        is_pending = told is None or not self._was_given_up(told)
        return End(kind, job_id, "unfinished", _not_yet(told), is_pending)

    def _was_given_up(self, told: JobRecord) -> bool:
        """Return whether the job's message came for the last time, as far as can be told."""
        if told.attempts < MAX_RECEIVES:
            return False
        silent_ms = self.now_ms - told.updated_ms
        return told.state == "failed" or (told.state == "running" and silent_ms > SILENT_MS)

    def over(self, kind: str, job_id: str, told: JobRecord | None, done: Callable[[], End]) -> End:
        """Return how a job ended of which nothing is left to do, if its record says so."""
        if told is not None and told.state == "finished" and told.reason != OUTCOME_UNKNOWN:
            return done()
        if told is not None and told.state == "failed":
            return End(kind, job_id, "failed", told.reason)
        since_ms = told.updated_ms if told is not None else self.asked_ms
        if self.now_ms - since_ms < LOST_MS:
            return self.telling(kind, job_id, told)
        return End(kind, job_id, "failed", UNKNOWN)

    def is_telling(self, told: JobRecord | None) -> bool:
        """Return whether the run that committed may live, and is about to say what came of it."""
        is_running = told is not None and told.state == "running"
        return is_running and told is not None and self.now_ms - told.updated_ms < TELLING_MS

    def telling(self, kind: str, job_id: str, told: JobRecord | None) -> End:
        """Return that a job may be done, and nothing says so yet."""
        return End(kind, job_id, "unfinished", _not_yet(told), is_pending=True)


def _not_yet(told: JobRecord | None) -> str:
    """Say that a job is not done, and what is known of it."""
    if told is None or not told.attempts:
        return "not finished yet; it has not begun, and may still be done"
    times = f"not finished yet after {told.attempts} attempts, and may still be done"
    return f"{times}: {told.reason}" if told.reason else times


def _compactions(look: _Look, work: Compactions) -> Iterator[End]:
    held = look.state.jobs if look.state.generation == work.generation else {}
    for job_id in sorted(work.jobs, key=lambda job: job not in held):
        if job_id in held:
            yield look.pending("compaction", job_id, look.record(job_id))
        else:
            yield _compaction(look, work, job_id)


def _compaction(look: _Look, work: Compactions, job_id: str) -> End:
    told = look.record(job_id)

    def done() -> End:
        counts = Counts(finished=1, rows=told.rows, shards=told.files) if told else Counts()
        return End("compaction", job_id, counts=counts)

    if look.state.generation != work.generation and (told is None or told.state != "finished"):
        return End("compaction", job_id, "failed", EMPTIED)
    if (told is None or told.state != "finished") and job_id in look.runs:
        if look.is_telling(told):
            return look.telling("compaction", job_id, told)
        shards = look.state.shards.values()
        rows = sum(shard.rows for shard in shards if run_of_shard(shard.id)[0] == job_id)
        return End("compaction", job_id, counts=Counts(finished=1, rows=rows))
    return look.over("compaction", job_id, told, done)


def _files(look: _Look, work: Files) -> Iterator[End]:
    sources = [source for job in work.jobs for source in job.sources]
    known = look_up(look.services, look.table, sources)
    left = {job.job_id: known.fresh(job.sources) for job in work.jobs}
    for job in sorted(work.jobs, key=lambda job: not left[job.job_id]):
        yield from _ingest(look, job, left[job.job_id], known.state.generation)


def _ingest(look: _Look, job: IngestJob, left: list[Source], generation: int) -> Iterator[End]:
    """Return how a job stands, and each file of it that is not ingested."""
    told = look.record_since(job.job_id)
    if left and job.generation < generation:
        yield from (End("file", s.key, "refused", EMPTIED, counts=_REFUSED) for s in left)
    elif left and (told is None or told.state != "finished"):
        yield look.pending("ingest", job.job_id, told)
        return
    else:
        found = [_file(look, job, source) for source in left]
        yield from found
        if any(end.state == "unfinished" for end in found):
            return
    if not left and look.is_telling(told):
        yield look.telling("ingest", job.job_id, told)
        return
    yield End("ingest", job.job_id, counts=Counts(finished=1, rows=_rows(look, job, told)))


_REFUSED = Counts(refused=1)


def _file(look: _Look, job: IngestJob, source: Source) -> End:
    """Return how a file stands that is not ingested though its job ended."""
    told = look.record_since(source.id)
    if told is not None and told.state == "refused":
        return End("file", source.key, "refused", told.reason, counts=_REFUSED)
    alone = job_id_of((source,), job.generation)
    return look.pending("ingest", alone, look.record_since(alone))


def _rows(look: _Look, job: IngestJob, told: JobRecord | None) -> int:
    """Return how many rows came of a job, or of the jobs of its files if it was taken apart."""
    if told is None or told.state != "finished" or told.reason == ALREADY_INGESTED:
        return 0
    if not is_isolated(told):
        return told.rows
    alone = (look.record_since(job_id_of((s,), job.generation)) for s in job.sources)
    return sum(each.rows for each in alone if each is not None and each.state == "finished")


def _export(look: _Look, work: Export) -> Iterator[End]:
    if kept_export(look.services, look.table.id, work.export_id) is not None:
        yield look.pending("export", work.export_id, look.record(work.export_id))
        return
    manifest = manifest_at(look.services.results, work.to)
    if manifest is None or manifest.export != work.export_id:
        told = look.record(work.export_id)
        reason = told.reason if told is not None and told.state == "failed" else UNKNOWN
        yield End("export", work.export_id, "failed", reason)
        return
    files, size_bytes = len(manifest.files), manifest.size_bytes
    counts = Counts(finished=1, files=files, rows=manifest.rows, size_bytes=size_bytes)
    yield End("export", work.export_id, counts=counts)


def _purge(look: _Look, work: Purge) -> Iterator[End]:
    """Return how a purge stands: it has not ended before the objects are gone that held rows."""
    if purge_request(look.services, look.table.id, work.purge_id) is not None:
        yield look.pending("purge", work.purge_id, look.record(work.purge_id))
        return
    told = look.record(work.purge_id)
    left = _left(look) if told is not None and told.state == "finished" else []
    if left:
        reason = (
            "no row of it is found in the table any more, but objects that may hold such rows are "
            f"not deleted yet: {len(left)}, among them {left[0]}"
        )
        yield End("purge", work.purge_id, "unfinished", reason, is_pending=True)
        return
    removed = told.rows if told is not None else 0
    yield look.over(
        "purge",
        work.purge_id,
        told,
        lambda: End("purge", work.purge_id, counts=Counts(finished=1, removed=removed)),
    )


def _left(look: _Look) -> list[str]:
    """Return which objects are there that the table did not need when its purge was finished.

    All that it needed were looked at by the purge, and hold no row of it; so once these are gone,
    no object does. Listed before the state is read, so what is committed meanwhile is none of them.
    """
    listed = [o.path for o in look.services.storage.list(data_prefix(look.table.id))]
    state = look.services.store(look.table).current()
    idle = [path for path in listed if not state.reference_counts.get(_shard_of(path), 0)]
    known = kept_left(look.services, look.table.id, look.key)
    if known is None:
        known = keep_left(look.services, look.table.id, look.key, tuple(idle))
    return sorted({*idle} & {*known})


def _shard_of(path: str) -> str:
    return path.rpartition("/")[2].removesuffix(".parquet")


def _splits(look: _Look, work: Splits) -> Iterator[End]:
    for partition in work.partitions:
        yield _split(look, work, partition)


def _split(look: _Look, work: Splits, partition: str) -> End:
    job_id, tree = split_job_id(partition), look.state.partitions
    if look.state.generation != work.generation:
        return End("split", job_id, "failed", EMPTIED)
    if partition not in tree or not tree.get(partition).is_leaf:
        return End("split", job_id, counts=Counts(finished=1, partitions=1))
    if look.state.rows_in(partition) < fewest_rows(look.table.properties, forced=work.forced):
        return End("split", job_id, "failed", "not split: it has too few rows by now")
    told = look.record(job_id)
    if told is not None and told.state == "finished" and told.reason not in ("", OUTCOME_UNKNOWN):
        rests = not work.forced and look.now_ms - told.updated_ms < backoff_ms(told.attempts)
        if rests or told.updated_ms >= look.asked_ms:
            return End("split", job_id, "failed", told.reason)
    since = told if told is not None and told.updated_ms >= look.asked_ms else None
    return look.pending("split", job_id, since)


def _garbage(look: _Look, work: Garbage) -> Iterator[End]:
    for shards in together(work.shards):
        job_id = garbage_job_id(shards)
        if look.state.generation != work.generation:
            yield End("garbage", job_id, "failed", EMPTIED)
        elif any(shard in look.state.shards for shard in shards):
            yield look.pending("garbage", job_id, look.record(job_id))
        else:
            yield End("garbage", job_id, counts=Counts(finished=1, shards=len(shards)))
