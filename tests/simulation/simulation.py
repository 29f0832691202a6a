"""One run: an instance, its users, its processes and its faults, all of one seed.

A step is a turn of one process up to its next call, a message given to a function, something that
users do, or time that goes by. After each step what it changed is checked: each new version of a
table, and each shard that was deleted. When the users are done fault injection stops, all that
was begun is ended, and what then lies in the instance is checked (`final_checks`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from dormouse.errors import CorruptDataError, DormouseError
from dormouse.features.checking import acknowledge
from dormouse.messages.requests import AdminRequest
from dormouse.messages.stages import QUEUES
from dormouse.stored.paths import REPLIES
from tests.simulation.backpressure import Turn
from tests.simulation.event_log import EventLog, Violation
from tests.simulation.fault_injection import HOUR_MS, FaultInjector, no_faults, random_faults
from tests.simulation.instance import MEMORY_BYTES, SCARCE_BYTES, Delivery, Instance, Worker
from tests.simulation.message_answers import MessageAnswers
from tests.simulation.message_queries import Askers
from tests.simulation.oracle import Oracle
from tests.simulation.outsiders import Outsiders, publishes
from tests.simulation.processes import Call, Died, Fate
from tests.simulation.queries import begin_query
from tests.simulation.queues import feeds, time_limits
from tests.simulation.scheduler import Scheduler, Task
from tests.simulation.shapes import drawn_shape
from tests.simulation.versions import operations_with_versions
from tests.simulation.watch import Watch
from tests.simulation.workload import KEEPING, LATEST_SEEDS, Workload, drawn_operations

SHORT_STEPS = 700
STEPS_FOR_AN_OPERATION = 25
"""For each so many steps, users do one thing at most."""
CHECKED = ("/data/", "/deltas/", "/segments/", "/snapshots/")
"""What of a path says that its object has checksums, so that no damage in it is believed."""
SHARE_WITH_SPARK = 0.6
"""In this part of the runs the instance has Spark; in the others heavy compactions are cut."""
SHARE_LONG = 0.25
"""This part of the runs goes on for two months: as long as a message can live."""
AT_ONCE = 6
"""How many processes are at work at a time, at most."""
NO_SKEW_MS = 2000
SWEEP_MS = 5 * 60 * 1000
AUDIT_MS = 10 * 1000
"""Audits come once a day, at any moment of whatever goes on; here they come more often."""

Owner = tuple[str, Worker]
"""A process, and for which function it is."""


@dataclass
class Simulation:
    """A run of one seed, with the state of a folder if so, and `steps` before faults stop."""

    seed: int
    folder: Path
    steps: int = SHORT_STEPS
    in_folder: bool = False
    events: EventLog = field(default_factory=EventLog)
    calls: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        """Draw all that is drawn once."""
        draws = Random(self.seed)
        self.random = Random(draws.random())
        ids = Random(draws.random())
        memory_bytes = self.random.choice((MEMORY_BYTES, SCARCE_BYTES))
        self.instance = Instance(self.folder, ids, memory_bytes, in_folder=self.in_folder)
        self.injector: FaultInjector = random_faults(Random(draws.random()))
        self.faults = self.injector.counts
        self.scheduler = Scheduler[Owner]()
        users = Random(draws.random())
        operations = operations_with_versions(self.seed, drawn_operations(users, self.seed))
        shape = drawn_shape(users)
        self.workload = Workload(
            self.instance,
            users,
            operations,
            lambda: self.injector.happens("untold"),
            shape=shape,
            keeps_latest=self.seed % LATEST_SEEDS == KEEPING and not shape.grows,
            publishes=publishes(self.seed),
            stop_publishers_for=lambda: self.outsiders.stop_publishers(),
        )
        self.outsiders = Outsiders(self)
        self.askers = Askers(self)
        self.answers = MessageAnswers(self, self.askers)
        self.is_long = draws.random() < SHARE_LONG
        self.instance.has_spark = draws.random() < SHARE_WITH_SPARK
        self.slack_ms = 2 * self.injector.skew_ms + NO_SKEW_MS
        self.services = self.instance.worker("watcher").wiring.services
        self.watch = Watch(
            self.instance,
            self.workload,
            self.services,
            lambda what: self.tell("", what),
            self.slack_ms,
            self.explains,
        )
        self.idle: dict[str, list[Worker]] = {}
        self.step, self.number, self.operations = 0, 0, 0
        self.begun: dict[str, int] = {}
        self.end_ms: dict[str, int] = {}
        self.turn, self.spoiled = Turn(), set[str]()
        self.swept_ms, self.audited_ms = self.now_ms, self.now_ms
        queues = self.instance.queues
        queues.order = self._shuffled
        queues.late_ms = self._late_ms
        kept = ("admin", REPLIES)
        queues.is_lost = lambda queue, body: queue not in kept and self.askers.is_lost(body)

    @property
    def now_ms(self) -> int:
        """The instance's time."""
        return self.instance.clock.now_ms()

    def begin(self) -> None:
        """Let users ask for the first tables."""
        self.tell("faults", f"are {self.injector}")
        self.tell("schema", str(self.workload.shape.schema.to_json()))
        tables = self.random.randint(1, 3)
        self.workload.begin(1 if self.workload.keeps_latest else tables)
        self.askers.begin()

    def end(self) -> None:
        """End all processes, wherever they are."""
        for task in list(self.scheduler.tasks):
            task.owner[1].process.is_dead = True
            while not task.is_done:
                self.scheduler.give_turn(task)

    def act(self) -> None:
        """Make one step."""
        choices = self._choices()
        if not choices:
            self._pass_time()
            return
        weights = [weight for weight, _ in choices]
        (chosen,) = self.random.choices([act for _, act in choices], weights)
        self._step(chosen)

    def stop_faults(self) -> None:
        """End the faults and all pauses; clocks stay as they are."""
        self.injector = no_faults(self.random)
        self.tell("faults", "stop")
        self.outsiders.stopped_ms = 0
        for task in self.scheduler.tasks:
            task.wake_ms = 0

    def settle(self) -> None:
        """Do all there is to do now, in any order, without waiting for what is delayed."""
        for _ in range(200_000):
            choices = self._choices(users=False)
            if not choices:
                return
            self._step(self.random.choice([act for _, act in choices]))
        raise Violation("there is no end to what is to be done")

    def tell(self, who: str, what: str, fate: str = "") -> None:
        """Add a line to the event log."""
        what = what.replace(str(self.folder), "")  # another one each time
        self.events.tell(self.step, self.now_ms, who, what, fate)

    def sweep(self, *, audit: bool) -> None:
        """Run the sweep in a process of its own."""
        self.swept_ms = self.now_ms
        if audit:
            self.audited_ms = self.now_ms
        self.start(
            "sweep",
            f"sweep{', with an audit' if audit else ''}",
            lambda worker: worker.scheduled("sweep", audit=audit),
        )

    def ask_alone(self, request: AdminRequest) -> None:
        """Ask for something, and have it done before anything else."""
        self.instance.ask(request)
        delivery = self.instance.take("admin")
        assert delivery is not None
        self.handle_alone(delivery)

    def handle_alone(self, delivery: Delivery) -> None:
        """Have a function do what it is given before anything else is done."""
        self.step += 1
        worker = self._new_worker(f"alone-{self.step}")
        self.turn = Turn(worker.process.name, self.step, self.step)
        found = "; ".join(message.body for message in delivery.messages)
        self.tell(worker.process.name, f"begins: {found}")
        worker.handle(delivery)
        self._look()

    def oracle(self, table_id: str) -> Oracle:
        """Return what is known of a table."""
        return self.watch.oracle(table_id)

    def _step(self, act: Callable[[], None]) -> None:
        self.step += 1
        self.instance.clock.ms += self.random.randint(1, 40)
        act()
        self._rot()
        self._look()

    def _choices(self, *, users: bool = True) -> list[tuple[float, Callable[[], None]]]:
        """Return what can be the next step, and how likely it is to be chosen."""
        choices: list[tuple[float, Callable[[], None]]] = []
        for task in self.scheduler.awake(self.now_ms):
            choices.append((10.0, lambda task=task: self._turn(task)))
        if len(self.scheduler.tasks) < AT_ONCE or not choices:
            for queue in QUEUES:
                if self.instance.queues.has_visible(queue) and not self.outsiders.is_stopped(queue):
                    choices.append((3.0, lambda queue=queue: self._deliver(queue)))
            for run_id in self.instance.undriven():
                choices.append((1.0, lambda run_id=run_id: self._drive(run_id)))
            steps = STEPS_FOR_AN_OPERATION // (3 if self.workload.keeps_latest else 1)
            if users and self.operations < self.steps // steps:
                choices.append((1.0, self._users_act))
            if users:
                choices.append((0.6, lambda: begin_query(self)))
                choices += self.askers.choices()
                if self.workload.publishes:
                    choices.append((2.0, self.outsiders.begin))
                if self.now_ms - self.swept_ms > SWEEP_MS:
                    choices.append((0.5, lambda: self.sweep(audit=False)))
                if self.now_ms - self.audited_ms > AUDIT_MS:
                    choices.append((0.2, lambda: self.sweep(audit=True)))
        if users and not self.scheduler.awake(self.now_ms):
            choices.append((1.0, self._pass_time))
        return choices

    def _pass_time(self) -> None:
        """Let time go by: to when something can happen, or some hours more."""
        times = [task.wake_ms for task in self.scheduler.tasks]
        visible_ms = self.instance.queues.next_visible_ms()
        if visible_ms is not None:
            times.append(visible_ms)
        next_ms = min(times, default=self.now_ms)
        if self.random.random() < 0.2:
            next_ms = max(next_ms, self.now_ms + int(self.injector.between(1000, 12 * HOUR_MS)))
        self.step += 1
        self.instance.clock.ms = max(self.now_ms + 1, next_ms)

    def _users_act(self) -> None:
        self.operations += 1
        self.tell("users", self.workload.act())

    def _deliver(self, queue: str) -> None:
        most = self.random.choice((1, 2, 10)) if feeds()[queue].batch > 1 else 1
        delivery = self.instance.take(queue, most)
        if delivery is None:
            return
        for message in delivery.messages:
            if self.injector.happens("twice"):
                message.visible_ms = self.now_ms + self.random.randint(0, 5000)
        found = "; ".join(f"{m.id} (receive {m.receives}) {m.body}" for m in delivery.messages)
        feed = feeds()[queue]
        self.start(feed.function, found, lambda worker: self._handle(worker, delivery))

    def _handle(self, worker: Worker, delivery: Delivery) -> None:
        failed = worker.handle(delivery)
        if failed:
            self.tell(worker.process.name, f"did not do {', '.join(failed)}")

    def _drive(self, run_id: str) -> None:
        self.instance.driven.add(run_id)
        run = self.instance.spark.runs[run_id]
        tell = not self.injector.happens("untold")
        what = f"run {run_id} of Spark: {run.kind} {run.table_id} {run.job_id}"
        self.start("spark", what, lambda worker: worker.drive(run_id, tell=tell))

    def start(self, function: str, what: str, work: Callable[[Worker], None]) -> None:
        """Begin something in a process that is warm, or in a new one."""
        idle = self.idle.setdefault(function, [])
        if idle and self.random.random() < 0.7:
            worker = idle.pop(self.random.randrange(len(idle)))
        else:
            self.number += 1
            worker = self._new_worker(f"{function}-{self.number}")
        self.begun[worker.process.name] = self.step
        if (seconds := time_limits().get(function)) is not None:
            self.end_ms[worker.process.name] = self.now_ms + seconds * 1000
        self.tell(worker.process.name, f"begins: {what}")
        self.scheduler.start((function, worker), lambda: self._work(worker, work))

    def _new_worker(self, name: str) -> Worker:
        skew_ms = self.injector.skew()
        return self.instance.worker(
            name, self._gate, skew_ms=skew_ms, sleep=self.sleep, spoil=self._spoil
        )

    def _work(self, worker: Worker, work: Callable[[Worker], None]) -> None:
        try:
            work(worker)
        except ExceptionGroup as group:  # a sweep of some tables: each is among the failures
            self.tell(worker.process.name, f"failed: {group}")
        except DormouseError as error:
            self.instance.failures.append(error)

    def _turn(self, task: Task[Owner]) -> None:
        name = task.owner[1].process.name
        self.turn = Turn(name, self.begun[name], self.step)
        self.scheduler.give_turn(task)
        if not task.is_done:
            return
        function, worker = task.owner
        if task.error is None:
            self.tell(worker.process.name, "ends")
            if left := [path.name for path in worker.scratch.iterdir()]:
                raise Violation(f"{worker.process.name} left {left[0]} in its scratch folder")
            self.idle[function].append(worker)
        elif isinstance(task.error, Died):
            self.tell(worker.process.name, "is dead")
            worker.close()
        else:
            raise task.error

    def sleep(self, seconds: float) -> None:
        """Let the process that runs sleep."""
        task = self.scheduler.running
        if task is not None:
            task.wake_ms = self.now_ms + int(seconds * 1000)
            self.scheduler.wait()

    def _gate(self, call: Call) -> Fate:
        task = self.scheduler.running
        if task is not None:
            if pause_ms := self.injector.pause_ms():
                task.wake_ms = self.now_ms + pause_ms
                self.tell(call.process, f"is frozen for {pause_ms // 1000} s")
            self.scheduler.wait()
        if self._is_out_of_time(call):
            self.tell(call.process, "is out of time")
            return Fate.DIES_BEFORE
        fate = self.injector.fate(call, self.now_ms)
        self.calls[call.service] += 1
        what = f"{call.service}.{call.method} {call.subject}"
        self.tell(call.process, what, "" if fate is Fate.LANDS else fate.value)
        self.watch.note(call)
        return fate

    def _spoil(self, call: Call, body: bytes) -> bytes:
        """Return what of some bytes arrives."""
        has_checksum = call.service == "s3" and any(part in call.subject for part in CHECKED)
        if not has_checksum or not self.injector.happens("flips"):
            return body
        self.spoiled.add(call.subject)
        self.tell(call.process, f"is given damaged bytes of {call.subject}")
        return self.injector.damaged(body)

    def explains(self, error: CorruptDataError) -> bool:
        """Return whether an error names an object that is damaged, or came damaged."""
        return any(path.rpartition("/")[2].partition(".")[0] in str(error) for path in self.spoiled)

    def _rot(self) -> None:
        """Damage a shard that lies there, if that is drawn; it stays damaged until faults stop."""
        if not self.injector.happens("rot"):
            return
        storage = self.instance.storage
        shards = [stored.path for stored in storage.list("") if "/data/" in stored.path]
        if shards:
            path = self.random.choice(shards)
            storage.damaged[path] = self.injector.damaged(storage.get(path))
            self.spoiled.add(path)
            self.tell("storage", f"damages {path}")

    def repair(self) -> None:
        """Make whole what is damaged, as people do from a copy, and settle disputes over it."""
        self.instance.storage.damaged.clear()
        self.spoiled.clear()
        people = self.instance.worker("people").wiring
        for table in self.instance.tables.all():
            if table.deleting:
                continue
            disputed = sorted(people.services.store(table).current().disputed)
            self.tell("people", f"repair table {table.id}, disputed: {disputed}")
            if disputed:
                people.outbox.send(acknowledge(people.services, table, disputed))
        self.watch.look(self.turn)

    def _is_out_of_time(self, call: Call) -> bool:
        """Return whether the time of the function is over in which a call is made."""
        if not self.injector.limited or self.now_ms <= self.end_ms.get(call.process, self.now_ms):
            return False
        self.faults["time over"] += 1
        return True

    def _look(self) -> None:
        self.watch.look(self.turn)
        self.answers.look()

    def _late_ms(self) -> int:
        return (
            int(self.injector.between(1000, 12 * HOUR_MS)) if self.injector.happens("late") else 0
        )

    def _shuffled(self, messages: list) -> list:
        return self.random.sample(messages, len(messages))
