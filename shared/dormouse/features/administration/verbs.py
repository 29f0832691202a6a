"""All verbs, with the function that carries out each, and all kinds of work that they cause.

A new verb is defined in `dormouse.requests`, carried out in the `request` module of its feature,
and listed here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from dormouse.features.compaction.request import CompactionWork, compact_table
from dormouse.features.dead_letters.request import redrive
from dormouse.features.export.request import ExportWork, request_export
from dormouse.features.garbage.request import GarbageWork, collect_garbage
from dormouse.features.ingest.request import IngestWork, ingest_files
from dormouse.features.purge.request import PurgeWork, request_purge
from dormouse.features.requests.work import RequestResult
from dormouse.features.splitting.request import SplitWork, split_partitions
from dormouse.features.tables.alter_schema import alter_schema
from dormouse.features.tables.create_table import create_table
from dormouse.features.tables.delete_table import delete_table
from dormouse.features.tables.reinitialise_table import reinitialise_table
from dormouse.features.tables.rename_table import rename_table
from dormouse.features.tables.set_online import set_online
from dormouse.features.tables.set_properties import set_defaults, set_properties
from dormouse.messages import OutboundMessage
from dormouse.requests import (
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

AnyWork = CompactionWork | IngestWork | ExportWork | PurgeWork | SplitWork | GarbageWork
"""The work of any request, as it is stored; its tag is its kind."""


@dataclass(frozen=True, slots=True)
class Verb:
    """How requests of one type are carried out.

    `run` returns the result, or only the messages to send. With `causes_jobs`, the result may have
    work to wait for.
    """

    run: Callable[..., RequestResult | list[OutboundMessage] | None]
    causes_jobs: bool = False


VERBS: Mapping[type[Request], Verb] = {
    AlterSchema: Verb(alter_schema),
    CollectGarbage: Verb(collect_garbage, causes_jobs=True),
    CompactTable: Verb(compact_table, causes_jobs=True),
    CreateTable: Verb(create_table),
    DeleteTable: Verb(delete_table),
    ExportRows: Verb(request_export, causes_jobs=True),
    IngestFiles: Verb(ingest_files, causes_jobs=True),
    PurgeRows: Verb(request_purge, causes_jobs=True),
    Redrive: Verb(redrive),
    ReinitialiseTable: Verb(reinitialise_table),
    RenameTable: Verb(rename_table),
    SetDefaults: Verb(set_defaults),
    SetOnline: Verb(set_online),
    SetProperties: Verb(set_properties),
    SplitPartitions: Verb(split_partitions, causes_jobs=True),
}
