"""What was taken of shards, and disputes over them, as records; used by `dynamodb_records`."""

from __future__ import annotations

from collections.abc import Mapping

from dormouse.key_forms.stored import decode_key, encode_key
from dormouse.keys.ranges import KeyRange
from dormouse.model.disputes import Dispute, DisputeReason, RowsTaken
from dormouse.statestore.items import Value, Values
from dormouse.stored.decoding import raise_corrupt


def takings_to(shard: str, takings: tuple[RowsTaken, ...]) -> dict[str, Values]:
    """Return the record of each taking of a shard by its name, which says its place among them.

    It does not say the job: one that ended can be assigned again, and take of another partition.
    """
    return {f"{shard}/{place:09d}": _taking(taking) for place, taking in enumerate(takings)}


def _taking(taking: RowsTaken) -> Values:
    low, high = taking.range.min, taking.range.max
    record: dict[str, Value] = {"job": taking.job, "partition": taking.partition}
    record["low"] = encode_key(low)
    if high is not None:
        record["high"] = encode_key(high)
    return record if taking.rows is None else {**record, "rows": taking.rows}


def takings_of(records: Mapping[str, Values]) -> dict[str, tuple[RowsTaken, ...]]:
    """Return the takings of records by their shard."""
    found: dict[str, list[RowsTaken]] = {}
    for text, record in sorted(records.items()):
        shard = text.partition("/")[0]
        with raise_corrupt(f"what was taken, {text}, cannot be read"):
            match record:
                case {"job": str(job), "partition": str(partition), "low": bytes(low)}:
                    rows, high = record.get("rows"), record.get("high")
                    end = decode_key(high) if isinstance(high, bytes) else None
                    counted = rows if isinstance(rows, int) else None
                    taking = RowsTaken(job, partition, counted, KeyRange(decode_key(low), end))
                case _:
                    raise ValueError(f"it has {', '.join(record)}")
        found.setdefault(shard, []).append(taking)
    return {shard: tuple(takings) for shard, takings in found.items()}


def dispute_to(dispute: Dispute | None) -> Values | None:
    """Return the record of a dispute."""
    if dispute is None:
        return None
    return {
        "reason": dispute.reason.value,
        "since_ms": dispute.since_ms,
        "jobs": dispute.jobs,
    }


def dispute_of(shard: str, record: Values) -> Dispute:
    """Return the dispute of a record."""
    with raise_corrupt(f"the dispute over shard {shard} cannot be read"):
        match record:
            case {"reason": str(reason), "since_ms": int(since_ms), "jobs": tuple(jobs)}:
                return Dispute(DisputeReason(reason), since_ms, jobs)
            case _:
                raise ValueError(f"it has {', '.join(record)}")
