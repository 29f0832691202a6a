"""Sealings as a state can accept them, without the segments they name."""

from __future__ import annotations

from dormouse.state.state import SealSources, SourceSegment, TableState


def sealing_of(
    state: TableState, name: str = "g", *, up_to: int | None = None, replaced: int = 0
) -> SealSources:
    """Return a sealing of the sources up to a version, which replaces so many segments."""
    end = state.version if up_to is None else up_to
    there = state.source_segments
    kept, gone = there[: len(there) - replaced], there[len(there) - replaced :]
    count = sum(segment.count for segment in gone) + len(state.sources_up_to(end))
    after = kept[-1].up_to if kept else 0
    segment = SourceSegment(name, after, end, count, 20 * count, 16 * count, count)
    return SealSources(segment, tuple(one.id for one in gone))
