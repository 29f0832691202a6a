"""Pictures of a table: its partition tree, its shards, numbers side by side."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from dormouse.client import Status
from dormouse.keys.ranges import KeyRange, show_key
from dormouse.model.partitions import ROOT
from dormouse.model.state import TableState
from dormouse_cli.terminal import plain_table

SHARDS_SHOWN = 12


def partition_tree(state: TableState) -> Tree:
    """Draw the partitions, each leaf with its rows and the shards that hold them."""
    tree = Tree(_label(state, ROOT), guide_style="dim")
    _grow(tree, state, ROOT)
    return tree


def _grow(tree: Tree, state: TableState, partition: str) -> None:
    for child in state.partitions.get(partition).children or ():
        _grow(tree.add(_label(state, child)), state, child)


def _label(state: TableState, partition: str) -> Text:
    found = state.partitions.get(partition)
    held = state.references_in(partition)
    label = Text(_interval(found.range), style="bold" if found.is_leaf else "dim")
    if held or found.is_leaf:
        count = f"{len(held)} shard{'s'[: len(held) != 1]}"
        label.append(f"  {state.rows_in(partition):,} rows in {count}", style="cyan not bold")
    if any(reference.job for reference in held):
        label.append("  compacting", style="yellow not bold")
    return label


def _interval(span: KeyRange) -> str:
    start = show_key(span.min) if span.min else "…"
    return f"{start} → {'…' if span.max is None else show_key(span.max)}"


def shards_table(state: TableState) -> Table:
    """Draw the shards with rows that count: size, keys, and in how many partitions they count."""
    table = Table.grid(padding=(0, 3))
    counted = [s for s in state.shards.values() if s.id not in state.unreferenced]
    for name in ("rows", "size", "partitions"):
        table.add_column(name, justify="right")
    table.add_column("keys", justify="left")
    table.add_row(*(Text(t, style="bold") for t in ("rows", "size", "partitions", "keys")))
    for shard in sorted(counted, key=lambda s: (s.min_key, s.id))[:SHARDS_SHOWN]:
        table.add_row(
            f"{shard.rows:,}",
            f"{shard.size_bytes / 1e6:.1f} MB",
            str(state.reference_counts.get(shard.id) or 0),
            f"{show_key(shard.min_key)} – {show_key(shard.max_key)}",
        )
    return table


def side_by_side(titles: Sequence[str], statuses: Sequence[Status]) -> Table:
    """Draw the numbers of a table at several moments."""
    names = ("rows", "shards", "references", "partitions", "leaf_partitions", "version")
    table = plain_table(["", *titles], ["", *(0 for _ in titles)])
    for name in names:
        numbers = (f"{getattr(status, name):,}" for status in statuses)
        table.add_row(name.replace("_", " "), *numbers)
    return table
