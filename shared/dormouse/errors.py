"""Every error Dormouse raises, sorted by what the caller should do about it.

Rejected commits are not errors but outcomes (see ``statestore.outcome``): data, for the caller to
match on.
"""


class DormouseError(Exception):
    """The root. The message is one sentence; `hint`, when there is one, says what to do."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        """Keep `message` for people and the `hint` that follows it."""
        super().__init__(_showable(message))
        self.hint = _showable(hint)

    @property
    def explanation(self) -> str:
        """The message, and the hint after it if there is one."""
        return f"{self}; {self.hint}" if self.hint else str(self)


def _showable(text: str) -> str:
    """Return text that every terminal, queue and store takes: no half of a character in it."""
    return text.encode("utf-8", "backslashreplace").decode()


class UnavailableError(DormouseError):
    """A service did not answer or refused for now. Nothing was changed; try again later."""


class ContendedError(UnavailableError):
    """Every attempt lost against other writers. Nothing was changed; try again later."""


class OutcomeUnknownError(DormouseError):
    """A write may or may not have landed. Re-read and look for it; delete nothing it may need."""


class TimedOutError(DormouseError):
    """What was waited for did not happen in time. It still may: only the waiting was given up."""


class OutOfSpaceError(DormouseError):
    """What was begun together needs more room than there is. Begin with less at once."""


class JobTooLargeError(DormouseError):
    """A job is too much for where it was tried, and cannot be made smaller. Needs a person."""


class NotFoundError(DormouseError):
    """Something named in the call does not exist."""


class AlreadyExistsError(DormouseError):
    """Something that was to be made is there already."""


class InvalidRequestError(DormouseError):
    """The request can never succeed as it is. Change it; retrying is useless."""


class RefusedSourceError(InvalidRequestError):
    """An ingested file cannot become rows of its table. The file stays where it is."""


class CorruptDataError(DormouseError):
    """Stored bytes are not what was written: truncated, foreign or damaged. Needs a person."""


class DamagedEntryError(CorruptDataError):
    """What the registry keeps of a table, or of the instance, is not what was written.

    `name` is that of the table, and `table_id` its id, as far as they can be known; both are empty
    where it is the instance's properties that are damaged.
    """

    def __init__(self, message: str, *, name: str = "", table_id: str = "", hint: str = "") -> None:
        """Keep `message` and `hint` as every error does, and which table it is."""
        super().__init__(message, hint=hint)
        self.name, self.table_id = name, table_id

    @property
    def what(self) -> str:
        """What is damaged, for people: the table, by its name or else its id, or the instance."""
        return self.name or self.table_id or "(instance)"


class NewerRulesError(CorruptDataError):
    """A later release judges this table by rules not known here. Upgrade this one."""


class DamagedShardError(CorruptDataError):
    """A shard is not as it was written; `path` is that of its object, below the data root."""

    def __init__(self, message: str, *, path: str = "", hint: str = "") -> None:
        """Keep `message` and `hint` as every error does, and which shard it is."""
        super().__init__(message, hint=hint)
        self.path = path


class UnsortedRowsError(CorruptDataError):
    """Rows came in an order which contradicts the sort order they declare."""


class InvariantError(DormouseError):
    """The code contradicts itself. A bug: stop, keep the evidence."""
