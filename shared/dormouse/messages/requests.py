"""Administrators' requests: messages on the ``admin`` queue, which the command line sends too.

The JSON schemas in docs/messages are generated from this file.
"""

import re
from collections.abc import Sequence
from hashlib import blake2b
from typing import ClassVar, Literal

import msgspec
from msgspec import UNSET, UnsetType

from dormouse.access import Verb
from dormouse.errors import InvalidRequestError
from dormouse.messages import stages
from dormouse.stored.decoding import decode_json
from dormouse.stored.paths import REPLIES
from dormouse.tables.properties import SparkOptions

_ID = re.compile(r"[^\x00-\x1f\x7f]{1,128}")


def is_request_id(text: str) -> bool:
    """Return whether a request can have this id: it must be printable."""
    return _ID.fullmatch(text) is not None


class _Identified(stages.Message, frozen=True):
    request_id: str


class Request(_Identified, frozen=True, kw_only=True, repr_omit_defaults=True):
    """The base of all requests.

    A `request_id` is applied once, however often the request is delivered. Its outcome is recorded
    under that id, and sent to the instance's queue of replies if `reply` is set.

    `path` names, below ``dormouse.features``, what carries the request out: it takes `Services`,
    the table if the request is about one that exists, and the request. It returns a
    `RequestResult`, or only the messages to send. With `causes_jobs`, the result may have work to
    wait for.
    """

    path: ClassVar[str]
    causes_jobs: ClassVar[bool] = False
    reply: bool = False

    def __post_init__(self) -> None:
        """Refuse an id that is not printable."""
        if not is_request_id(self.request_id):
            raise ValueError("a request_id is 1 to 128 characters, none a control one")


class TableRequest(Request, frozen=True):
    """The base of requests about one table, by the name that it has when the request is made."""

    name: str


class CreateTable(TableRequest, frozen=True, tag="create_table"):
    """Create a table. `schema` is in its JSON form; a split point is a list of key parts."""

    path: ClassVar[str] = "tables:create_table"
    schema: dict[str, object]
    properties: dict[str, object] = {}
    split_points: tuple[tuple[object, ...], ...] = ()


class DeleteTable(TableRequest, frozen=True, tag="delete_table"):
    """Delete a table with all its rows. It is refused while the table has tags, unless
    `release_tags` is set.
    """

    path: ClassVar[str] = "deletion:delete_table"
    release_tags: bool = False


class SetOnline(TableRequest, frozen=True, tag="set_online"):
    """Put a table online, or take it offline: then it is neither compacted nor split."""

    path: ClassVar[str] = "tables:set_online"
    online: bool


class RenameTable(TableRequest, frozen=True, tag="rename_table"):
    """Rename a table. Files for it are dropped under the new name from then on."""

    path: ClassVar[str] = "tables:rename_table"
    new_name: str


class ReinitialiseTable(TableRequest, frozen=True, tag="reinitialise_table"):
    """Reset a table: remove all its rows. Its partitions stay, unless `split_points` are given, at
    which the new leaf partitions meet, or `delete_partitions`, after which there is a single
    partition.

    With a `schema` in its JSON form, the table has that schema from then on; its columns get new
    ids. Partitions that do not fit the new row keys cannot stay. Files ingested before are
    forgotten: they can be ingested again, and are not by themselves. Tags stay, and with them the
    rows that they hold, unless `release_tags` is set.
    """

    path: ClassVar[str] = "tables:reinitialise_table"
    delete_partitions: bool = False
    split_points: tuple[tuple[object, ...], ...] = ()
    schema: dict[str, object] | UnsetType = UNSET
    release_tags: bool = False


class TagVersion(TableRequest, frozen=True, tag="tag_version"):
    """Keep a version of a table, and name it: it can be read until the tag is removed.

    `version` must be one that can be read now. With `moves`, the tag may be one of another version.
    """

    path: ClassVar[str] = "versions:tag_version"
    version: int
    tag: str
    moves: bool = False


class UntagVersion(TableRequest, frozen=True, tag="untag_version"):
    """Remove a tag of a table. What only its version needed is deleted after that."""

    path: ClassVar[str] = "versions:untag_version"
    tag: str


class RestoreVersion(TableRequest, frozen=True, tag="restore_version"):
    """Make an earlier version of a table its newest: all rows and partitions are those of that
    version.

    `as_of` is a version that can be read, a tag or an ISO 8601 time. It is refused if a shard of
    the version is gone. Jobs are released. Files ingested since are forgotten: they can be ingested
    again, and are not by themselves.
    """

    path: ClassVar[str] = "versions:restore_version"
    as_of: int | str


class SetProperties(TableRequest, frozen=True, tag="set_properties"):
    """Set properties of a table, and unset others, which then come from the instance again."""

    path: ClassVar[str] = "tables:set_properties"
    properties: dict[str, object] = {}
    unset: tuple[str, ...] = ()


class SetDefaults(Request, frozen=True, tag="set_defaults"):
    """Set or unset properties of the instance, which apply to tables that do not set their own."""

    path: ClassVar[str] = "tables:set_defaults"
    properties: dict[str, object] = {}
    unset: tuple[str, ...] = ()


class GrantAccess(Request, frozen=True, tag="grant_access"):
    """Let callers of services do something with tables: put an access rule, in the place of one for
    the same principal and tables. With the first rule, nobody may do what no rule grants.

    `principal` and `tables` are names, or patterns with ``*``; `verbs` are of read, write and
    administer. `hidden_columns` are hidden from readers by this rule.
    """

    path: ClassVar[str] = "access:grant_access"
    principal: str
    tables: str
    verbs: tuple[Verb, ...]
    hidden_columns: tuple[str, ...] = ()


class RevokeAccess(Request, frozen=True, tag="revoke_access"):
    """Remove the access rule of a principal for tables. If none is left, nobody may do anything."""

    path: ClassVar[str] = "access:revoke_access"
    principal: str
    tables: str


class ClearAccess(Request, frozen=True, tag="clear_access"):
    """Remove all access rules: IAM alone decides again who may ask services."""

    path: ClassVar[str] = "access:clear_access"


class AlterSchema(TableRequest, frozen=True, tag="alter_schema"):
    """Change the columns of a table: add fields in JSON form, drop columns, rename them from old to
    new, give them wider types.

    A column is named as before the change, for a wider type also as after it; a member of a struct
    by the name of its column, a dot and its own; between them, the elements of a list are called
    element, the values of a map value. A member that is added is named so too, a new name of one is
    only its own. `types` are written as in a schema. `units` say what numbers in files count in a
    column of timestamps or dates; an empty unit removes the present one.
    """

    path: ClassVar[str] = "tables:alter_schema"
    add: tuple[dict[str, object], ...] = ()
    drop: tuple[str, ...] = ()
    rename: dict[str, str] = {}
    units: dict[str, str] = {}
    types: dict[str, object] = {}


class PurgeRows(TableRequest, frozen=True, tag="purge_rows"):
    """Remove all selected rows; rows that come later are not affected. The selection has either a
    condition in `where` or `keys`, and nothing else. With `spark`, Spark rewrites the shards,
    otherwise functions do. It is refused while the table has tags, which hold such rows, unless
    `release_tags` is set: then the tags are removed.
    """

    path: ClassVar[str] = "purge:request_purge"
    causes_jobs: ClassVar[bool] = True
    selection: stages.SelectionMessage
    release_tags: bool = False
    spark: SparkOptions | UnsetType | None = UNSET


class DeleteRows(TableRequest, frozen=True, tag="delete_rows"):
    """Hide all selected rows from every reader, from the next version on. The selection has either
    a condition in `where` or `keys`, and nothing else. Rows that come later are not affected.
    Compactions leave the rows out; to have them removed from every object, purge them.
    """

    path: ClassVar[str] = "delete_rows:delete_rows"
    selection: stages.SelectionMessage


class ForgetSubjects(TableRequest, frozen=True, tag="forget_subjects"):
    """Forget the keys of subjects of a table with a `subject_column`: what their rows have in
    encrypted columns is null from then on, in every version and copy. Each of `subjects` is a value
    of that column. Rows of theirs that come later get another key.
    """

    path: ClassVar[str] = "delete_rows:forget_subjects"
    subjects: tuple[object, ...]


class CompactTable(TableRequest, frozen=True, tag="compact_table"):
    """Start the compactions of a table that are due, also if the table is offline. With `all`,
    merge the shards of each leaf partition into one sorted run, whatever the table's strategy; of a
    published table, also rewrite shards that are alone there, if readers of Iceberg gain by it.
    With `spark`, Spark does it, otherwise the table's properties decide.
    """

    path: ClassVar[str] = "planning:compact_table"
    causes_jobs: ClassVar[bool] = True
    all: bool = False
    spark: SparkOptions | UnsetType | None = UNSET


class SplitPartitions(TableRequest, frozen=True, tag="split_partitions"):
    """Split the leaf partitions of a table that have too many rows, also if the table is offline;
    or only the leaf `partition`. With `forced`, split however few rows they have.
    """

    path: ClassVar[str] = "splitting:split_partitions"
    causes_jobs: ClassVar[bool] = True
    partition: str = ""
    forced: bool = False


class CollectGarbage(TableRequest, frozen=True, tag="collect_garbage"):
    """Delete the shards of a table that nothing references and whose delay is over."""

    path: ClassVar[str] = "garbage:request_collection"
    causes_jobs: ClassVar[bool] = True


class PublishIceberg(TableRequest, frozen=True, tag="publish_iceberg"):
    """Publish what is new of a table for readers of Iceberg, at once; or, with `all`, all of it
    again: what was published is then not looked at, and may be damaged or lost.
    """

    path: ClassVar[str] = "publishing:request_publication"
    all: bool = False


class ExportRows(TableRequest, frozen=True, tag="export_rows"):
    """Write the selected rows to Parquet files in the results bucket, below the prefix `to`.

    The selection may have no limit. With `spark`, Spark does it, otherwise the table's properties
    decide. With `skip_damaged`, rows of shards that are lost or damaged are left out; the manifest
    names these shards.
    """

    path: ClassVar[str] = "export:request_export"
    causes_jobs: ClassVar[bool] = True
    to: str = ""
    selection: stages.SelectionMessage = stages.ALL_ROWS
    spark: SparkOptions | UnsetType | None = UNSET
    skip_damaged: bool = False


class IngestFiles(TableRequest, frozen=True, tag="ingest_files"):
    """Ingest objects that are already in the ingest bucket, in any folder, into a table. Each of
    `keys` is that of an object or a folder. Objects that the table has ingested before are skipped,
    unless `again` is set: then this request adds them once more, and a repetition of the request
    adds nothing. With `spark`, it is one bulk import, or several if there are very many files;
    otherwise the table's properties decide. All rows get the row `tags`, beside those that folders
    of the objects say.
    """

    path: ClassVar[str] = "batch_files:ingest_files"
    causes_jobs: ClassVar[bool] = True
    keys: tuple[str, ...]
    spark: SparkOptions | UnsetType | None = UNSET
    again: bool = False
    tags: dict[str, str] = {}


class Redrive(Request, frozen=True, tag="redrive"):
    """Send dead letters of a queue back to the queue: those with `ids`, or all."""

    path: ClassVar[str] = "dead_letters:redrive_dead_letters"
    queue: str
    ids: tuple[str, ...] = ()


AdminRequest = (
    AlterSchema
    | ClearAccess
    | CollectGarbage
    | CompactTable
    | CreateTable
    | DeleteRows
    | DeleteTable
    | ForgetSubjects
    | GrantAccess
    | IngestFiles
    | SetOnline
    | RenameTable
    | ReinitialiseTable
    | SetProperties
    | SetDefaults
    | PublishIceberg
    | PurgeRows
    | ExportRows
    | Redrive
    | RestoreVersion
    | RevokeAccess
    | SplitPartitions
    | TagVersion
    | UntagVersion
)


def verb_of(request: AdminRequest) -> str:
    """Return the name of a request's type, as it is shown everywhere: its `type` on the wire."""
    return str(type(request).__struct_config__.tag)


def decode_admin(text: str | bytes) -> AdminRequest | stages.RequestStep:
    """Parse an administrator's request of any type, or a step of one.
    Raises InvalidRequestError: it is neither; the error says where it differs.
    """
    try:
        request: AdminRequest | stages.RequestStep = decode_json(
            text, AdminRequest | stages.RequestStep
        )
    except ValueError as error:
        raise InvalidRequestError(
            f"not a valid admin message: {error}",
            hint="docs/messages has the JSON schema of each request, with its present version `v`",
        ) from error
    return request


# Replies to administrators, sent to the queue ``replies`` for requests that ask for one.
#
# A request is ``accepted`` when the jobs that it causes are known, and ``finished`` or ``failed``
# when all of them have ended. A request that causes no jobs is ``finished`` at once, and one that
# cannot be done is ``refused``. The JSON schema in docs/messages is generated from this file.

MAX_JOBS_LISTED = 50
"""The most jobs that a reply lists."""
MAX_REASON_CHARACTERS, MAX_JOB_REASON_CHARACTERS = 10_000, 1000
Outcome = Literal["accepted", "finished", "failed", "refused"]
JobState = Literal["assigned", "refused", "failed", "unfinished"]


class Counts(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a request caused, in numbers; zeros are left out.

    - `jobs`: how many it caused; each is `finished`, `failed` or `unfinished` at the time of the
      reply
    - `files`: files asked for, of which `known` were ingested before and `refused` cannot be
      ingested; of an export, the files written
    - `rows`: rows ingested, merged or exported; `removed`: rows purged
    - `shards`: shards merged, or deleted as garbage; `partitions`: partitions split
    - `size_bytes`: size of the exported files or of the deleted garbage
    - `messages`: dead letters redriven
    - `keys`: keys of subjects that there were, and are no more
    """

    jobs: int = 0
    finished: int = 0
    failed: int = 0
    unfinished: int = 0
    files: int = 0
    known: int = 0
    refused: int = 0
    rows: int = 0
    removed: int = 0
    shards: int = 0
    partitions: int = 0
    size_bytes: int = 0
    messages: int = 0
    keys: int = 0

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(*(getattr(self, n) + getattr(other, n) for n in self.__struct_fields__))


class ReplyJob(msgspec.Struct, frozen=True, omit_defaults=True):
    """A job, or a file of a job, in a reply. `id` is the job's id among the table's jobs, or the
    file's key.

    `state` is ``assigned`` when the request is accepted. At the end it is ``refused``, ``failed``,
    or ``unfinished``: not done at the time of the reply, though it may still be, as `reason` says.
    """

    kind: str
    id: str
    state: JobState = "assigned"
    reason: str = ""


class Reply(stages.Message, frozen=True, kw_only=True, tag="reply"):
    """What happened to a request: ``accepted`` first if it causes jobs, then ``finished``, or
    ``failed`` if anything was not done; or ``refused``.

    A reply may be delivered more than once, with the same `id`. `jobs` lists the jobs caused, in an
    ``accepted`` reply, or those not done, in a ``failed`` one; `more` counts those left out of a
    long list.
    """

    id: str
    request_id: str
    request: str
    outcome: Outcome
    table_id: str = ""
    reason: str = ""
    counts: Counts = Counts()
    jobs: tuple[ReplyJob, ...] = ()
    more: int = 0


def reply_to(
    request_id: str,
    verb: str,
    outcome: Outcome,
    *,
    table_id: str = "",
    reason: str = "",
    counts: Counts | None = None,
    jobs: Sequence[ReplyJob] = (),
    is_last_attempt: bool = False,
) -> Reply:
    """Return a reply; long lists and reasons are truncated."""
    meaning = "last attempt" if is_last_attempt else outcome != "accepted"
    if outcome == "refused":  # perhaps what has the id of a request that was carried out
        meaning = outcome
    text = f"{request_id}\n{verb}\n{table_id}\n{meaning}"
    return Reply(
        id=blake2b(text.encode(errors="surrogatepass"), digest_size=16).hexdigest(),
        request_id=request_id,
        request=verb,
        outcome=outcome,
        table_id=table_id,
        reason=reason[:MAX_REASON_CHARACTERS],
        counts=counts or Counts(),
        jobs=tuple(
            msgspec.structs.replace(job, reason=job.reason[:MAX_JOB_REASON_CHARACTERS])
            for job in jobs[:MAX_JOBS_LISTED]
        ),
        more=max(0, len(jobs) - MAX_JOBS_LISTED),
    )


def to_outbound(reply: Reply) -> stages.OutboundMessage:
    """Return a reply as a message to the queue of replies."""
    return stages.OutboundMessage(REPLIES, reply)


def refusal(request: AdminRequest, reason: str) -> list[stages.OutboundMessage]:
    """Return the reply to a refused request, if the request asks for a reply."""
    if not request.reply:
        return []
    return [to_outbound(reply_to(request.request_id, verb_of(request), "refused", reason=reason))]
