"""Every error that Dormouse raises, classified by what the caller should do about it.

Rejected commits are not errors but outcomes (see ``state_store.Outcome``), to be matched.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches


def is_panic(error: BaseException) -> bool:
    """Return whether a library in Rust panicked.

    PyO3 raises that as a BaseException of a module that cannot be imported, so that nobody takes it
    for an error. What is lost is the library's call, not the process.
    """
    return type(error).__name__ == "PanicException"


def did_you_mean(name: str, names: Iterable[str], otherwise: str = "") -> str:
    """Return a hint at that of the `names` which is nearest; `otherwise` if none is near."""
    near = get_close_matches(name, list(names), 1)
    return f"did you mean {near[0]}?" if near else otherwise


class DormouseError(Exception):
    """The base class. The message is one sentence; `hint`, if there is one, says what to do."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        """Set the `message` for people, and the `hint` that follows it."""
        super().__init__(_showable(message))
        self.hint = _showable(hint)
        if hint:  # a traceback has notes
            self.add_note(f"hint: {self.hint}")

    @property
    def explanation(self) -> str:
        """The message, followed by the hint if there is one."""
        return f"{self}; {self.hint}" if self.hint else str(self)

    @property
    def class_name(self) -> str:
        """The name of the nearest class of this module that the error is of."""
        return next(each.__name__ for each in type(self).__mro__ if each.__module__ == __name__)


def error_named(name: str, message: str, hint: str = "") -> DormouseError:
    """Return an error of the class that has a name, as another process has told it."""
    kind = globals().get(name)
    if not (isinstance(kind, type) and issubclass(kind, DormouseError)):
        kind = InvariantError
    error: DormouseError = kind(message, hint=hint)
    return error


def _showable(text: str) -> str:
    """Return text that every terminal, queue and store accepts: without unpaired surrogates."""
    return text.encode("utf-8", "backslashreplace").decode()


class UnavailableError(DormouseError):
    """A service did not answer or refused for now. Nothing was changed; retry later."""


class DiskFullError(UnavailableError):
    """A disk of this machine has no room. Nothing was changed; retry once it has."""


class ContendedError(UnavailableError):
    """Every attempt lost against concurrent writers. Nothing was changed; retry later."""


class ServiceRefusedError(UnavailableError):
    """A service refuses a request for good: it lacks the operation, or the caller a permission.
    Nothing was changed; a retry is useless.
    """


class NoSuchInstanceError(ServiceRefusedError):
    """The account and region have no instance of that name, or it lacks one of its parts."""


class OutcomeUnknownError(DormouseError):
    """A write may or may not have landed. Read again to find out; delete nothing it may need."""


class TimedOutError(DormouseError):
    """The caller stopped waiting for something. It may still happen."""


class DeadLetterError(DormouseError):
    """What the caller waits for failed too often: its message is a dead letter. Needs a person."""


class OutOfSpaceError(DormouseError):
    """The inputs of one job do not fit into its scratch space together. Start with fewer."""


class JobTooLargeError(DormouseError):
    """A job is too large for the place where it was tried, and cannot be split. Needs a person."""


class NotFoundError(DormouseError):
    """Something named in the call does not exist."""


class NotBegunError(NotFoundError):
    """A table had no version yet."""


class VersionGoneError(NotFoundError):
    """Shards of the version that is read are not there, or not any more."""


class ForbiddenError(DormouseError):
    """The caller may not do this, by the access rules of the instance. A retry is useless."""


class AlreadyExistsError(DormouseError):
    """Something that was to be created exists already."""


class InvalidRequestError(DormouseError):
    """The request can never succeed as it is. Change it; a retry is useless."""


class HiddenRowsError(InvalidRequestError):
    """Properties would hide rows of a table. Say that this is wanted, or choose others."""


class LimitExceededError(DormouseError):
    """A statement needs more time or memory than it may use. Ask for less, or raise the limits."""


class MissingPackageError(DormouseError):
    """A part of Dormouse was asked for whose packages are not installed. The hint names them."""


class RefusedSourceError(InvalidRequestError):
    """An ingested file cannot become rows of its table. The file stays where it is."""


class CorruptDataError(DormouseError):
    """Stored bytes are not what was written: truncated, foreign or damaged. Needs a person."""


class DamagedEntryError(CorruptDataError):
    """The registry's entry of a table, or of the instance, is not what was written.

    `name` and `table_id` are those of the table as far as they are known. Both are empty if the
    properties of the instance are damaged.
    """

    def __init__(self, message: str, *, name: str = "", table_id: str = "", hint: str = "") -> None:
        """Set `message` and `hint`, and the table that is affected."""
        super().__init__(message, hint=hint)
        self.name, self.table_id = name, table_id

    @property
    def what(self) -> str:
        """What is damaged, for people: the table's name, else its id, else the instance."""
        return self.name or self.table_id or "(instance)"


BRING_BACK = (
    "bring the object back from an older version or a backup; `dormouse check NAME --bytes` finds "
    "all that is damaged or lost of a table, and `dormouse export NAME --skip-damaged` writes the "
    "rows of everything else"
)


class DamagedShardError(CorruptDataError):
    """A shard is not what was written; `path` is that of its object, below the data root."""

    def __init__(self, message: str, *, path: str = "", hint: str = "") -> None:
        """Set `message` and `hint`, and the path of the shard."""
        super().__init__(message, hint=hint or BRING_BACK)
        self.path = path


def damaged_shard(path: str, problem: str, *, hint: str = "") -> DamagedShardError:
    """Return the error of a shard at a path, by what is wrong with it."""
    return DamagedShardError(f"{path} is damaged: {problem}", path=path, hint=hint)


class UnsortedRowsError(CorruptDataError):
    """Rows came in an order that contradicts the sort order they declare."""


class InvariantError(DormouseError):
    """The code contradicts itself: a bug. Stop, and keep the evidence."""


# Packages that only a part of the library needs, and which an extra installs.

_OWN = ("dormouse", "dormouse_cli", "dormouse_spark")


@contextmanager
def needs_extra(extra: str, what: str) -> Iterator[None]:
    """Raise MissingPackageError if an import of the block fails; `what` needs the `extra`.

    A missing module of our own is a bug, and is raised as it is.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in _OWN:
            raise
        raise MissingPackageError(
            f"{what} needs the package {package!r}, which is not installed",
            hint=f"pip install 'dormouse-tables[{extra}]'",
        ) from error
