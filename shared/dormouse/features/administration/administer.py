"""administer: a request about a whole table → done once, or refused with the reason.

Each is finished by its redelivery if it was cut off, and done once whatever the deliveries: what
was done is remembered by the request's id, under the table that it is about. What each does is in
the package of its feature.

Where jobs follow from a request, they are kept (`answering`) before their messages are sent, and
`follow_request` records their end, and answers if a reply is wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dormouse.errors import AlreadyExistsError, InvalidRequestError, NotFoundError
from dormouse.features.administration.about import About
from dormouse.features.administration.answering import Asked
from dormouse.features.compaction.request import compact_table
from dormouse.features.dead_letters.request import redrive
from dormouse.features.export.request import export_rows
from dormouse.features.garbage.request import collect_garbage
from dormouse.features.ingest.request import ingest_files
from dormouse.features.purge.request import purge_rows
from dormouse.features.requests.work import Begun, messages_again
from dormouse.features.splitting.request import split_partitions
from dormouse.features.tables.alter_schema import alter_schema
from dormouse.features.tables.create_table import create_table
from dormouse.features.tables.delete_table import delete_table
from dormouse.features.tables.reinitialise_table import reinitialise_table
from dormouse.features.tables.rename_table import rename_table
from dormouse.features.tables.set_online import set_online
from dormouse.features.tables.set_properties import set_defaults, set_properties
from dormouse.messages import OutboundMessage
from dormouse.ports import Services
from dormouse.replies import to_outbound
from dormouse.requests import (
    AdminRequest,
    AlterSchema,
    CollectGarbage,
    CompactTable,
    CreateTable,
    DeleteTable,
    ExportRows,
    IngestFiles,
    PurgeRows,
    Redrive,
    ReinitialiseTable,
    RenameTable,
    Request,
    SetDefaults,
    SetOnline,
    SetProperties,
    SplitPartitions,
)

VERBS: Mapping[type[Request], Callable[..., Begun | list[OutboundMessage] | None]] = {
    AlterSchema: alter_schema,
    CollectGarbage: collect_garbage,
    CompactTable: compact_table,
    CreateTable: create_table,
    DeleteTable: delete_table,
    ExportRows: export_rows,
    IngestFiles: ingest_files,
    PurgeRows: purge_rows,
    Redrive: redrive,
    ReinitialiseTable: reinitialise_table,
    RenameTable: rename_table,
    SetDefaults: set_defaults,
    SetOnline: set_online,
    SetProperties: set_properties,
    SplitPartitions: split_partitions,
}
"""What does each kind of request; some have messages that follow from it, or jobs."""
AGAIN = (IngestFiles, SplitPartitions)
"""Of these, nobody else sends the messages if they were lost."""


def administer(services: Services, request: AdminRequest) -> list[OutboundMessage]:
    """Do what is asked, or record why not.

    Raises:
        InvalidRequestError: what is asked makes no sense, or not for this table; or the id is that
            of another request about it.
        AlreadyExistsError: what is to be made exists.
        NotFoundError: no table of that name exists.
    """
    about = About.of(services, request)
    if (last := about.last_reply()) is not None:
        about.check_verb(last.request)
        return [to_outbound(last)] if request.reply else []
    earlier = about.earlier()
    if (asked := about.asked()) is not None:
        about.check_verb(asked.request)
        return _begun_before(services, about, asked)
    if earlier is not None and not isinstance(request, AGAIN):
        return about.repeated(earlier)
    try:
        found = VERBS[type(request)](services, request)
    except (InvalidRequestError, AlreadyExistsError, NotFoundError) as error:
        if earlier is not None:  # nothing is left to do of it
            return about.repeated(earlier)
        about.record(about.reply("refused", reason=error.explanation))
        raise
    begun = found if isinstance(found, Begun) else Begun(found or [])
    return [*begun.messages, *about.begin(begun)]


def _begun_before(services: Services, about: About, asked: Asked) -> list[OutboundMessage]:
    """Return the messages of what is left of a request: those of its beginning may be lost."""
    table = services.table(about.table_id)
    about.record(about.accepted(asked))
    messages = messages_again(services, table, asked.work) if table is not None else []
    return [*messages, *about.follow(asked)]
