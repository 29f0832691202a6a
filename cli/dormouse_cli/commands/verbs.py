"""Every verb of the command, in the order in which it lists them."""

from __future__ import annotations

from dormouse_cli.commands.deferred import Verb, Verbs

_TABLE = Verbs(
    "Create, list, show, change, empty and delete tables.",
    {
        "add": Verb("commands.table:add"),
        "list": Verb("commands.table:list_tables"),
        "unregistered": Verb("commands.table:unregistered"),
        "show": Verb("commands.table:show"),
        "alter": Verb("commands.table:alter"),
        "rename": Verb("commands.table:rename"),
        "set": Verb("commands.table:set_properties"),
        "unset": Verb("commands.table:unset_properties"),
        "online": Verb("commands.table:online"),
        "offline": Verb("commands.table:offline"),
        "apply": Verb("commands.apply:apply"),
        "purge": Verb("commands.purge:purge"),
        "reinitialise": Verb("commands.table:reinitialise"),
        "delete": Verb("commands.table:delete"),
    },
)
_SPLITS = Verbs(
    "Split points: the keys at which partitions of a table meet.",
    {
        "estimate": Verb("commands.splits:estimate"),
        "export": Verb("commands.splits:export"),
    },
)
_INSTANCE = Verbs(
    "Properties of the instance, the defaults of all its tables.",
    {
        "show": Verb("commands.instance:show"),
        "set": Verb("commands.instance:set_defaults"),
        "unset": Verb("commands.instance:unset_defaults"),
    },
)
_ACCESS = Verbs(
    "Access rules: which principals may use which tables through services of the instance.",
    {
        "list": Verb("commands.access:list_rules"),
        "grant": Verb("commands.access:grant"),
        "revoke": Verb("commands.access:revoke"),
        "check": Verb("commands.access:check"),
        "off": Verb("commands.access:off"),
    },
)
_ICEBERG = Verbs(
    "What is published for readers of Iceberg: show, publish, check, list files, serve.",
    {
        "show": Verb("commands.iceberg:show"),
        "publish": Verb("commands.iceberg:publish"),
        "check": Verb("commands.iceberg:check"),
        "files": Verb("commands.iceberg:files"),
        "serve": Verb("commands.catalog:serve"),
    },
)
_QUERIES = Verbs(
    "Queries over messages: list, show, read their results, cancel.",
    {
        "list": Verb("commands.queries:list_queries"),
        "show": Verb("commands.queries:show"),
        "result": Verb("commands.queries:result"),
        "cancel": Verb("commands.queries:cancel"),
    },
    default="list",
)
_DLQ = Verbs(
    "Dead letters (DLQ), messages that failed too often: show, redrive, discard.",
    {
        "list": Verb("commands.queues:list_dead_letters"),
        "show": Verb("commands.queues:show"),
        "redrive": Verb("commands.queues:redrive"),
        "discard": Verb("commands.queues:discard"),
    },
)

VERBS: dict[str, Verb | Verbs] = {
    "table": _TABLE,
    "ingest": Verb("commands.ingest:ingest"),
    "wait": Verb("commands.ingest:wait_until_done"),
    "work": Verb("commands.work:work"),
    "serve": Verb("commands.console:serve"),
    "console": Verb("commands.console:console"),
    "query": Verb("commands.query:query"),
    "sql": Verb("commands.sql:sql"),
    "delete": Verb("commands.purge:delete_rows"),
    "queries": _QUERIES,
    "export": Verb("commands.export:export"),
    "copy": Verb("commands.copying:copy"),
    "versions": Verb("commands.versions:versions"),
    "tag": Verb("commands.versions:tag"),
    "untag": Verb("commands.versions:untag"),
    "tags": Verb("commands.versions:tags"),
    "changes": Verb("commands.query:changes"),
    "restore": Verb("commands.versions:restore"),
    "status": Verb("commands.status:status"),
    "partitions": Verb("commands.contents:partitions"),
    "shards": Verb("commands.contents:shards"),
    "files": Verb("commands.contents:files"),
    "jobs": Verb("commands.jobs:jobs"),
    "metrics": Verb("commands.contents:metrics"),
    "report": Verb("commands.report:report"),
    "compact": Verb("commands.upkeep:compact"),
    "split": Verb("commands.upkeep:split"),
    "gc": Verb("commands.upkeep:collect"),
    "iceberg": _ICEBERG,
    "splits": _SPLITS,
    "queues": Verb("commands.queues:queues"),
    "dlq": _DLQ,
    "check": Verb("commands.check:check"),
    "rebuild": Verb("commands.rebuild:rebuild"),
    "instance": _INSTANCE,
    "access": _ACCESS,
    "template": Verb("commands.template:template"),
    "local": Verb("local.commands:app"),
}
