"""Every verb of the command, in the order in which it lists them."""

from __future__ import annotations

from dormouse_cli.commands.deferred import Verb, Verbs

_TABLE = Verbs(
    "Make, list, show, change, empty and delete tables.",
    {
        "add": Verb("dormouse_cli.commands.table:add", "Create a table."),
        "list": Verb("dormouse_cli.commands.table:list_tables", "List all tables."),
        "unregistered": Verb(
            "dormouse_cli.commands.table:unregistered",
            "List what lies in the data bucket of no known table; nothing of it is ever deleted.",
        ),
        "show": Verb(
            "dormouse_cli.commands.table:show",
            "Show a table's columns and properties, and where each value comes from.",
        ),
        "alter": Verb(
            "dormouse_cli.commands.table:alter",
            "Add, drop and rename a table's value columns, and show what it has then.",
        ),
        "rename": Verb("dormouse_cli.commands.table_settings:rename", "Give a table another name."),
        "set": Verb(
            "dormouse_cli.commands.table_settings:set_properties", "Set properties of a table."
        ),
        "unset": Verb(
            "dormouse_cli.commands.table_settings:unset_properties",
            "Take properties of a table back: it has the instance's again, or the defaults.",
        ),
        "online": Verb(
            "dormouse_cli.commands.table:online",
            "Put a table online: it is compacted and split as needed.",
        ),
        "offline": Verb(
            "dormouse_cli.commands.table:offline",
            "Take a table offline: it ingests and answers, but is neither compacted nor split.",
        ),
        "apply": Verb(
            "dormouse_cli.commands.apply:apply",
            "Make and change tables until they are as a file says; none is deleted.",
        ),
        "purge": Verb(
            "dormouse_cli.commands.purge:purge",
            "Remove all rows that match, for good, and prove it.",
        ),
        "reinitialise": Verb(
            "dormouse_cli.commands.table_settings:reinitialise",
            "Empty a table: its rows are lost, its name and properties stay.",
        ),
        "delete": Verb(
            "dormouse_cli.commands.table:delete",
            "Delete a table with all its rows. Files dropped for it stay in the ingest bucket.",
        ),
    },
)
_SPLITS = Verbs(
    "Split points, where the first partitions of a table meet.",
    {
        "estimate": Verb(
            "dormouse_cli.commands.splits:estimate",
            "Print the split points that cut the rows of files into equal parts.",
        ),
        "export": Verb(
            "dormouse_cli.commands.splits:export",
            "Print the split points at which the leaf partitions of a table meet.",
        ),
    },
)
_INSTANCE = Verbs(
    "Properties of the instance, which tables have where they set none of their own.",
    {
        "show": Verb(
            "dormouse_cli.commands.instance:show",
            "Show the properties of the instance, which of them are set, and what it has of Spark.",
        ),
        "set": Verb(
            "dormouse_cli.commands.instance:set_defaults", "Set properties of the instance."
        ),
        "unset": Verb(
            "dormouse_cli.commands.instance:unset_defaults",
            "Take properties of the instance back: they have their defaults again.",
        ),
    },
)
_DLQ = Verbs(
    "Messages that were given up: show, send back, discard.",
    {
        "list": Verb(
            "dormouse_cli.commands.queues:list_letters",
            "Show how many messages each queue gave up, since when, and the commonest reasons.",
        ),
        "show": Verb(
            "dormouse_cli.commands.queues:show",
            "Show the messages that a queue gave up, the oldest first. They stay where they are.",
        ),
        "redrive": Verb(
            "dormouse_cli.commands.queues:redrive",
            "Send messages back to the queue that gave them up; each is deleted once it was sent.",
        ),
        "discard": Verb(
            "dormouse_cli.commands.queues:discard",
            "Delete messages that a queue gave up, for good: what they asked for is never done.",
        ),
    },
)

VERBS: dict[str, Verb | Verbs] = {
    "table": _TABLE,
    "ingest": Verb(
        "dormouse_cli.commands.ingest:ingest",
        "Drop files into the ingest bucket. They become rows of the table shortly after.",
    ),
    "wait": Verb(
        "dormouse_cli.commands.ingest:wait_until_done",
        "Wait until nothing is pending: every file ingested or refused, no work in the queues.",
    ),
    "query": Verb(
        "dormouse_cli.commands.query:query",
        "Find rows by key, key range and condition, sorted by the keys.",
    ),
    "export": Verb(
        "dormouse_cli.commands.export:export",
        "Write rows to Parquet files, sorted, as they are at one version of the table.",
    ),
    "status": Verb(
        "dormouse_cli.commands.status:status",
        "Show a table in numbers: rows, shards, references, partitions, version, what is pending.",
    ),
    "jobs": Verb(
        "dormouse_cli.commands.jobs:jobs",
        "Show the jobs of the last seven days, the oldest first, and refused files with "
        "the reason.",
    ),
    "metrics": Verb(
        "dormouse_cli.commands.metrics:metrics",
        "Show how tables stand: what the metrics of the instance are told every minute.",
    ),
    "report": Verb(
        "dormouse_cli.commands.report:report",
        "Write a page about a table: its partitions, jobs, refused files, queues and properties.",
    ),
    "compact": Verb(
        "dormouse_cli.commands.upkeep:compact",
        "Begin the compactions of a table that are due now, or merge all of each leaf partition.",
    ),
    "split": Verb(
        "dormouse_cli.commands.upkeep:split",
        "Split the leaf partitions of a table that have too many rows now, or one of them.",
    ),
    "gc": Verb(
        "dormouse_cli.commands.upkeep:collect",
        "Delete the shards of a table that nothing needs any more and whose delay is over.",
    ),
    "splits": _SPLITS,
    "queues": Verb(
        "dormouse_cli.commands.queues:queues",
        "Show every queue: what waits, is worked on, is delayed, and was given up.",
    ),
    "dlq": _DLQ,
    "check": Verb(
        "dormouse_cli.commands.check:check",
        "Verify a table: its state in itself, and against the footer of every shard.",
    ),
    "rebuild": Verb(
        "dormouse_cli.commands.rebuild:rebuild",
        "Make a damaged or lost state anew from shards, or bring back a damaged registry entry.",
    ),
    "instance": _INSTANCE,
    "local": Verb(
        "dormouse_cli.local.commands:app",
        "Run an instance on this machine: an embedded AWS, and the template's functions.",
    ),
}
