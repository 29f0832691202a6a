"""An instance in a folder, whose work this process does."""

from pathlib import Path

from dormouse.client.instance import Instance
from dormouse.client.waiting import Polling
from dormouse.errors import InvalidRequestError
from dormouse.folder.queues import sweep_soon
from dormouse.folder.spark import SparkSubmit
from dormouse.folder.wiring import OpenFolder, open_folder
from dormouse.messages.stages import QUEUES
from dormouse.settings import memory_bytes, named_scratch_folder, scratch_folder, spark_environment

LOOK_SECONDS = 0.02
_ASKED_FOR = ("files", "ingest-jobs", "admin", "queries")
"""The queues of what a caller waits for. It leaves the others to the thread in the background, so
that it does not begin a long compaction just before its rows are there."""


def open_instance(root: Path, *, background: bool, create: bool) -> Instance:
    """Open the instance in a folder, as `Instance.open` says."""
    scratch = named_scratch_folder()
    if scratch is not None and not scratch.is_dir():
        raise InvalidRequestError(
            f"TMPDIR names {scratch} for temporary files, which is no folder",
            hint="make it, or name another",
        )
    environment = spark_environment()
    submit = None
    if environment is not None:
        submit = SparkSubmit(root, environment, memory_bytes(), scratch_folder())
    folder_instance = open_folder(
        root,
        memory_bytes=memory_bytes(),
        scratch=scratch,
        background=background,
        create=create,
        submit=submit,
    )
    if background:
        folder_instance.background.wake()
    work = _Work(folder_instance)
    polling = Polling(folder_instance.services.clock, work, LOOK_SECONDS, True, work.find_lost)
    return Instance(
        folder_instance.services,
        folder_instance.queues,
        folder_instance.inbox,
        polling,
        folder_instance.queues.ages,
        folder=folder_instance,
    )


class _Work:
    """Stands for a sleep: the time is used to work."""

    def __init__(self, folder_instance: OpenFolder) -> None:
        self._opened = folder_instance

    def __call__(self, seconds: float) -> None:
        queues = _ASKED_FOR if self._opened.background.runs else QUEUES
        self._opened.worker.work_for(seconds, queues)

    def find_lost(self) -> None:
        """Let a sweep look for work of which no queue has a message: who began it was interrupted
        before it sent that.
        """
        if not any(self._opened.queues.depths(QUEUES).values()):
            with self._opened.database.writing() as connection:
                sweep_soon(connection)
