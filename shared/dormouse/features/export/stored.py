"""Save, load and delete the stored state of running exports.

The export object is put last and deleted first: if it exists, all task objects do too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

from dormouse.errors import NotFoundError
from dormouse.features.export.export import (
    TASK,
    Export,
    ExportedFile,
    SkippedShard,
    decode_export,
    decode_files,
    encode_export,
    encode_files,
)
from dormouse.messages.stages import ExportJob, ExportTask, OutboundMessage
from dormouse.model.state import Piece
from dormouse.ports.services import Services, Storage
from dormouse.query.pieces import decode_pieces, encode_pieces
from dormouse.stored.paths import (
    export_done_path,
    export_done_prefix,
    export_parts_prefix,
    export_path,
    export_prefix,
    export_task_path,
    parse_export_path,
)

OBJECTS_AT_ONCE = 8
BATCH = 1000


def load_export(services: Services, table_id: str, export_id: str) -> Export | None:
    """Return a running export; None if it has ended.

    Raises:
        CorruptDataError: the stored export is damaged.
    """
    path = export_path(table_id, export_id)
    try:
        return decode_export(services.storage.get(path), path)
    except NotFoundError:
        return None


def save_export(services: Services, export: Export) -> bool:
    """Save an export whose tasks are saved, so that it begins; False if it has begun already."""
    path = export_path(export.table_id, export.id)
    return services.storage.put(path, encode_export(export, path))


def save_tasks(services: Services, export: Export, tasks: Iterable[Sequence[Piece]]) -> int:
    """Save the pieces of each task, at least one task; return the number of tasks."""

    def save(numbered: tuple[int, Sequence[Piece]]) -> None:
        task, pieces = numbered
        path = export_task_path(export.table_id, export.id, export.cut, task)
        services.storage.put(path, encode_pieces(pieces, TASK, path))

    count = 0
    with ThreadPoolExecutor(OBJECTS_AT_ONCE) as threads:
        for window in _windows(tasks):
            for _ in threads.map(save, enumerate(window, start=count)):
                count += 1
    if not count:
        save((0, ()))
    return max(1, count)


def _windows(tasks: Iterable[Sequence[Piece]]) -> Iterable[list[Sequence[Piece]]]:
    """Yield tasks in groups, so that only a few are in memory."""
    window: list[Sequence[Piece]] = []
    for task in tasks:
        window.append(task)
        if len(window) == 4 * OBJECTS_AT_ONCE:
            yield window
            window = []
    if window:
        yield window


def export_messages(export: Export) -> list[OutboundMessage]:
    """Return the messages that start an export: one for Spark, or one for each task."""
    if export.spark is None:
        return task_messages(export, range(export.tasks))
    return [OutboundMessage("spark-jobs", ExportJob(export.table_id, export.id, export.spark))]


def task_messages(export: Export, tasks: Iterable[int]) -> list[OutboundMessage]:
    """Return the messages that make functions run tasks."""
    return [
        OutboundMessage("exports", ExportTask(export.table_id, export.id, task)) for task in tasks
    ]


def load_pieces(storage: Storage, export: Export, task: int) -> tuple[Piece, ...]:
    """Return the pieces of a task.

    Raises:
        NotFoundError: the export has ended, or has no such task.
        CorruptDataError: the stored task is damaged.
    """
    path = export_task_path(export.table_id, export.id, export.cut, task)
    return decode_pieces(storage.get(path), TASK, path)


def save_task_files(
    storage: Storage,
    export: Export,
    task: int,
    files: Sequence[ExportedFile],
    skipped: Sequence[SkippedShard] = (),
) -> None:
    """Save the list of files of a finished task, and of the shards that it left out; it marks the
    task as finished.
    """
    path = export_done_path(export.table_id, export.id, task)
    storage.put(path, encode_files(files, path, skipped))


def is_task_done(storage: Storage, export: Export, task: int) -> bool:
    """Return whether a task is finished."""
    path = export_done_path(export.table_id, export.id, task)
    try:
        storage.get(path)
    except NotFoundError:
        return False
    return True


def unfinished_tasks(services: Services, export: Export) -> list[int]:
    """Return the tasks that are not finished."""
    table_id, export_id = export.table_id, export.id
    done = set(finished_task_paths(services, table_id, export_id))
    tasks = range(export.tasks)
    return [task for task in tasks if export_done_path(table_id, export_id, task) not in done]


def finished_task_paths(services: Services, table_id: str, export_id: str) -> list[str]:
    """Return the paths of the lists of files of finished tasks, in the order of the tasks."""
    return [
        stored.path for stored in services.storage.list(export_done_prefix(table_id, export_id))
    ]


def load_task_files(
    services: Services, paths: Iterable[str]
) -> tuple[list[ExportedFile], list[SkippedShard]]:
    """Return the files that finished tasks wrote, and the shards that they left out, each once.

    Raises:
        NotFoundError: the export has ended meanwhile.
        CorruptDataError: a stored list is damaged.
    """

    def load(path: str) -> tuple[tuple[ExportedFile, ...], tuple[SkippedShard, ...]]:
        return decode_files(services.storage.get(path), path)

    with ThreadPoolExecutor(OBJECTS_AT_ONCE) as threads:
        tasks = list(threads.map(load, paths))
    skipped = {shard.shard: shard for _, shards in tasks for shard in shards}
    return [file for files, _ in tasks for file in files], list(skipped.values())


def delete_export(services: Services, export: Export) -> None:
    """Delete the stored state of an export; after a crash the sweep deletes the rest."""
    services.storage.delete([export_path(export.table_id, export.id)])
    parts = services.storage.list(export_parts_prefix(export.table_id, export.id))
    delete_all(services, [stored.path for stored in parts])


def delete_all(services: Services, paths: Sequence[str]) -> None:
    """Delete objects, in batches."""
    for start in range(0, len(paths), BATCH):
        services.storage.delete(paths[start : start + BATCH])


def list_exports(
    services: Services, table_id: str, before_ms: int
) -> tuple[dict[str, int], list[str]]:
    """Return the running exports that began before a time, and the paths of leftovers as old.

    Running exports are mapped to when they began. A leftover is the object of a task whose export
    has ended.
    """
    running: set[str] = set()
    begun_ms: dict[str, int] = {}
    parts: list[tuple[str, str]] = []
    for stored in services.storage.list(export_prefix(table_id)):
        export_id, is_export = parse_export_path(stored.path)
        if is_export:
            running.add(export_id)
        if stored.modified_ms > before_ms:
            continue
        if is_export:
            begun_ms[export_id] = stored.modified_ms
        else:
            parts.append((export_id, stored.path))
    return begun_ms, [path for export_id, path in parts if export_id not in running]
