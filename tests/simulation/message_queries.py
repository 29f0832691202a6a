"""Users who ask queries by messages, ask them again, and cancel some of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Literal

from dormouse.keys import KeyRange
from dormouse.messages.stages import (
    AnswerQuery,
    CancelQuery,
    Message,
    QueryLimits,
    SelectionMessage,
    encode,
)
from tests.simulation.fault_injection import no_faults
from tests.simulation.rows import LETTERS

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation

EVERY_SEED = 5
"""In a run of each so many seeds users ask queries by messages."""
QUEUE = "queries"
ANSWERS = "answers"
"""The queue that results are sent to."""
STEPS_FOR_AN_ACT = 15
"""For each so many steps, they do one thing at most."""
FILES_AT_FIRST = 6
MOST_WAITS = 20
RECENT = 6
"""Of so many versions before the newest users ask."""
Format = Literal["parquet", "arrow", "feather"]
FORMATS: tuple[Format, ...] = ("parquet", "arrow", "feather")


@dataclass
class Asked:
    """A query that was asked: the message, and what it selects. Without `wanted`, it is all rows;
    without `letters`, those of any letter.
    """

    message: AnswerQuery
    wanted: tuple[KeyRange, ...] = ()
    letters: str = LETTERS
    is_cancelled: bool = False
    is_lost: bool = False


@dataclass
class Askers:
    """The users of a run who ask by messages. They draw for themselves: runs without them are as
    they would be.
    """

    run: Simulation
    random: Random = field(init=False)
    are_there: bool = field(init=False)
    acts: int = 0
    asked: dict[str, Asked] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Have queries cut into few or many sub-queries; let calls about pins fail."""
        self.random = Random(f"messages {self.run.seed}")
        self.are_there = self.run.seed % EVERY_SEED == 0
        if not self.are_there:
            return
        choose = self.random.choice
        settings = {
            "query_cut_bytes": choose((0, 0, 0, 5000)),
            "query_task_bytes": choose((1, 1, 1, 5000)),
            "query_limit_seconds": choose((3600, 14 * 24 * 3600, 14 * 24 * 3600)),
        }
        instance = self.run.instance
        instance.tables.settings = {**instance.tables.settings, **settings}
        instance.gates_pins = True

    def begin(self) -> None:
        """Fill a table before anything goes wrong, so that there is something to ask for."""
        if not self.are_there:
            return
        run, workload = self.run, self.run.workload
        injector, run.injector = run.injector, no_faults(self.random)
        run.settle()  # a table takes the files that are dropped once it is there
        for _ in range(FILES_AT_FIRST):
            run.tell("users", workload.drop())
        for _ in range(MOST_WAITS):
            run.settle()
            next_ms = run.instance.queues.next_visible_ms()
            if self._filled() or next_ms is None:
                break
            run.instance.clock.ms = max(run.now_ms, next_ms)
        run.injector = injector

    def choices(self) -> list[tuple[float, Callable[[], None]]]:
        """Return what these users can do next, and how likely that is."""
        has_more = self.acts < self.run.steps // STEPS_FOR_AN_ACT
        return [(2.0, self._act)] if self.are_there and has_more else []

    def _act(self) -> None:
        """Ask a query, repeat a message, or cancel a query."""
        drawn = self.random.random()
        if not self._filled() and drawn < 0.95:
            return  # wait until there are rows
        self.acts += 1
        if self.asked and drawn < 0.15:
            self._send(self.random.choice(list(self.asked.values())).message)
        elif self.asked and drawn < 0.3:
            self._cancel(self.random.choice(list(self.asked)))
        else:
            self._ask()

    def is_lost(self, body: str) -> bool:
        """Draw whether a message is lost, and note it: its query may not go on."""
        if not self.run.injector.happens("lost"):
            return False
        for query_id, asked in self.asked.items():
            asked.is_lost |= f'"{query_id}"' in body
        return True

    def _ask(self) -> None:
        query_id = f"q{len(self.asked)}"
        wanted, selection, letters = self._selection()
        message = AnswerQuery(
            query_id=query_id,
            table=self._name(),
            selection=selection,
            format=self.random.choice(FORMATS),
            to=ANSWERS if self.random.random() < 0.2 else "",
            limits=self._limits(),
        )
        self.asked[query_id] = Asked(message, wanted, letters)
        if self.random.random() < 0.05:
            self._cancel(query_id)  # its message may come first
        self._send(message)

    def _selection(self) -> tuple[tuple[KeyRange, ...], SelectionMessage, str]:
        """Draw keys and ranges, a condition, a limit and a version."""
        random, shape = self.random, self.run.workload.shape
        keys, ranges, wanted = [], [], []
        files = len(self.run.workload.dropped)
        for _ in range(random.choice((0, 0, 1, 1, 2, 3))):
            first, last = sorted(random.choices(range(shape.places(files)), k=2))
            low, high = shape.first_key(first), shape.first_key(last + 1)
            if random.random() < 0.5:
                keys.append(low.shown)
                wanted.append(KeyRange.exactly(low.key))
            else:
                ranges.append((low.shown, high.shown))
                wanted.append(KeyRange(low.key, high.key))
        letters = LETTERS
        if random.random() < 0.3:
            letters = "".join(sorted(random.sample(LETTERS, random.randint(1, 5))))
        selection = SelectionMessage(
            keys=tuple(keys),
            ranges=tuple(ranges),
            where="" if letters == LETTERS else shape.letter_condition(letters),
            limit=random.randint(1, 15) if random.random() < 0.3 else None,
            as_of=self._version() if random.random() < 0.2 else None,
        )
        return tuple(wanted), selection, letters

    def _limits(self) -> QueryLimits:
        drawn = self.random.random()
        if drawn < 0.1:
            return QueryLimits(rows=self.random.randint(1, 30))
        return QueryLimits(seconds=self.random.choice((60, 1800))) if drawn < 0.2 else QueryLimits()

    def _version(self) -> int:
        newest = [oracle.newest for oracle in self.run.watch.oracles.values()]
        return max(1, self.random.choice(newest or [1]) - self.random.randrange(RECENT))

    def _name(self) -> str:
        filled = self._filled()
        if filled and self.random.random() < 0.9:
            return self.random.choice(filled)
        return self.random.choice(self.run.workload.names)

    def _filled(self) -> list[str]:
        """Return the names of the tables that have rows."""
        oracles, tables = self.run.watch.oracles, self.run.instance.tables.all()
        return [t.name for t in tables if t.id in oracles and oracles[t.id].referenced]

    def _cancel(self, query_id: str) -> None:
        self.asked[query_id].is_cancelled = True
        self._send(CancelQuery(query_id=query_id))

    def _send(self, message: Message) -> None:
        body = encode(message)
        self.run.tell("users", f"send {body}")
        self.run.instance.queues.send(QUEUE, body, is_kept=True)
