"""Pipelined programs: several batches are in flight, each in another stage."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import or_

import numpy as np

from popgraph.backends.base import ComputedBy, Executable, refuse_donations
from popgraph.support.arrays import Array
from popgraph.support.dtypes import DType
from popgraph.support.errors import RunError
from popgraph.support.ranks.communicator import Communicator, Finish
from popgraph.support.shapes import Shape


@dataclass(frozen=True)
class Edge:
    """A tensor that one stage computes and other stages read."""

    number: int
    dtype: DType
    shape: Shape
    source: int
    """The rank that computes the tensor."""
    readers: Mapping[int, int]
    """Number of stages that read the tensor, by rank."""
    capacity: int
    """Capacity: the most batches in flight while all stages keep pace."""


class AbortedError(Exception):
    """Another stage has failed, so nothing more will arrive."""


class Mailboxes:
    """Keeps each tensor until all stages of this rank have read it."""

    def __init__(self, ranks: Communicator) -> None:
        self._ranks = ranks
        self._changed = threading.Condition()
        self._held: dict[tuple[int, int], Array] = {}
        self._unread = Counter[tuple[int, int]]()
        self._waiting = Counter[int]()
        self._receiving: dict[int, threading.Lock] = {}
        self._sent: dict[tuple[int, int], deque[Finish]] = defaultdict(deque)
        """Sends in flight, by edge and rank."""
        self._given_up = False

    def put(self, edge: Edge, batch: int, array: Array) -> None:
        """Delivers a tensor to all readers; blocks while a reader is `capacity` batches late."""
        for rank in sorted(edge.readers.keys() - {self._ranks.rank}):
            sends = self._sent[edge.number, rank]
            if len(sends) >= edge.capacity:
                sends.popleft()()
            sends.append(self._ranks.send(array, rank, edge.number, self._is_running))
        if self._ranks.rank in edge.readers:
            with self._changed:
                self._wait(lambda: self._waiting[edge.number] < edge.capacity)
                self._hold(edge, batch, array)

    def take(self, edge: Edge, batch: int) -> Array:
        """Waits for the tensor of a batch and returns it."""
        key = (edge.number, batch)
        if edge.source != self._ranks.rank:
            self._receive(edge, batch)
        with self._changed:
            self._wait(lambda: key in self._held)
            array = self._held[key]
            self._unread[key] -= 1
            if not self._unread[key]:
                del self._held[key], self._unread[key]
                self._waiting[edge.number] -= 1
                self._changed.notify_all()
            return array

    def _receive(self, edge: Edge, batch: int) -> None:
        """
        The first reader on this rank receives the tensor; messages of an edge arrive in batch
        order.
        """
        with self._changed:
            receiving = self._receiving.setdefault(edge.number, threading.Lock())
        with receiving:
            if (edge.number, batch) in self._held:
                return
            array = np.empty(edge.shape, edge.dtype.numpy)
            self._ranks.receive(array, edge.source, edge.number, self._is_running)
            with self._changed:
                self._hold(edge, batch, array)

    def _hold(self, edge: Edge, batch: int, array: Array) -> None:
        key = (edge.number, batch)
        self._held[key], self._unread[key] = array, edge.readers[self._ranks.rank]
        self._waiting[edge.number] += 1
        self._changed.notify_all()

    def _is_running(self) -> bool:
        return not self._given_up

    def _wait(self, is_so: Callable[[], bool]) -> None:
        self._changed.wait_for(lambda: self._given_up or is_so())
        if self._given_up:
            raise AbortedError

    def abort(self) -> None:
        """Wakes all waiting stages with AbortedError."""
        with self._changed:
            self._given_up = True
            self._changed.notify_all()

    def finish(self) -> None:
        """Waits until all sends have completed."""
        for sends in self._sent.values():
            for done in sends:
                done()


Types = Mapping[str, tuple[DType, Shape]]


@dataclass(frozen=True)
class Stage:
    """The computation of a device on a batch, `number` cycles after the batch began."""

    number: int
    device: int
    inputs: Types
    outputs: Types
    variables: Types
    executable: Executable | None
    """None if another rank runs the stage."""


@dataclass(frozen=True)
class UpdateSchedule:
    """
    Stages with the update, run on the last of `period` batches, and stages of the others.

    The variable `counter` holds the number of batches since the last update.
    """

    others: Sequence[Stage]
    last: Sequence[Stage]
    devices: Collection[int]
    """All devices, including idle ones."""
    period: int = 1
    counter: str = ""


def partition_devices(devices: Collection[int], count: int) -> dict[int, int]:
    """Partitions sorted devices into `count` contiguous blocks: device -> block."""
    return {one: at * count // len(devices) for at, one in enumerate(sorted(devices))}


@dataclass(frozen=True)
class _Route:
    """The stages and edges that a batch passes through."""

    stages: Mapping[tuple[int, int], Stage]
    """Stages by number and device."""
    edges: Mapping[str, Edge]
    homes: Mapping[str, int]
    """The rank that computes each output of the program."""


@dataclass
class _Step:
    """The batches of one call, with their routes."""

    inputs: Mapping[str, Array]
    results: Mapping[str, Array]
    routes: Sequence[_Route]
    mail: Mailboxes
    failures: list[BaseException] = field(default_factory=list)

    def run_devices(self, devices: Collection[int]) -> None:
        """Runs the stages of some devices, cycle by cycle."""
        try:
            for batch, stage in self._in_order(devices):
                self._run(batch, stage)
        except BaseException as error:  # The thread that waits for this one raises it.
            self.failures.append(error)
            self.mail.abort()

    def _in_order(self, devices: Collection[int]) -> Iterator[tuple[int, Stage]]:
        """Yields (batch, stage): in cycle c, stage s works on batch c - s."""
        every = {place for route in self.routes for place in route.stages if place[1] in devices}
        count, last = len(self.routes), max((number for number, _ in every), default=0)
        for cycle in range(count + last):
            for number, device in sorted(every):
                batch = cycle - number
                if 0 <= batch < count and (number, device) in self.routes[batch].stages:
                    yield batch, self.routes[batch].stages[number, device]

    def _run(self, batch: int, stage: Stage) -> None:
        assert stage.executable is not None, "a device runs its own stages"
        edges = self.routes[batch].edges
        given = {
            name: self.mail.take(edges[name], batch) if name in edges else self.inputs[name][batch]
            for name in stage.inputs
        }
        for name, array in stage.executable.run(given).items():
            if name in edges:
                self.mail.put(edges[name], batch, array)
            else:
                self.results[name][batch] = array

    def failure(self) -> BaseException | None:
        """The first error, if any."""
        causes = (error for error in self.failures if not isinstance(error, AbortedError))
        return next(causes, None)


class StagedExecutable(Executable):
    """
    A program cut into stages, each on one of several devices.

    Devices are partitioned among ranks, then among `threads`. All ranks call all methods together.
    Only `run_stacked` keeps all devices busy.
    """

    def __init__(
        self,
        schedule: UpdateSchedule,
        inputs: Types,
        outputs: Types,
        ranks: Communicator,
        threads: int,
    ) -> None:
        self.inputs, self.outputs = dict(inputs), dict(outputs)
        self._period, self._counter, self._batches_since_update = (
            schedule.period,
            schedule.counter,
            0,
        )
        self._ranks = ranks
        every = [*schedule.others, *schedule.last]
        self.variables = {name: row for stage in every for name, row in stage.variables.items()}
        self._is_consistent = True
        self._rank_of = partition_devices(schedule.devices, ranks.size)
        own = [one for one, rank in self._rank_of.items() if rank == ranks.rank]
        lanes = partition_devices(own, min(threads, len(own)))
        self._lanes = [[one for one in own if lanes[one] == at] for at in set(lanes.values())]
        self._homes: dict[str, int] = {}
        self._held: dict[str, dict[int, Executable]] = {name: {} for name in self.variables}
        for stage in every:
            for name in stage.variables:
                self._homes.setdefault(name, stage.device)
                if stage.executable is not None and name in stage.executable.variables:
                    self._held[name].setdefault(stage.device, stage.executable)
        self._others = self._route(schedule.others, 0)
        self._last = self._route(schedule.last, len(self._others.edges))

    def _route(self, stages: Sequence[Stage], first: int) -> _Route:
        """Numbers edges from `first`."""
        edges: dict[str, Edge] = {}
        for stage in stages:
            for name, (dtype, shape) in stage.outputs.items():
                readers = [one for one in stages if name in one.inputs]
                if readers and name not in self.outputs:  # which may be an input of the program
                    source, number = self._rank_of[stage.device], first + len(edges)
                    ranks = Counter(self._rank_of[one.device] for one in readers)
                    capacity = max(one.number for one in readers) - stage.number + 1
                    edges[name] = Edge(number, dtype, shape, source, ranks, capacity)
        places = {(one.number, one.device): one for one in stages}
        homes = {
            name: self._rank_of[one.device]
            for one in stages
            for name in one.outputs
            if name in self.outputs
        }
        return _Route(places, edges, homes)

    @property
    def computed_by(self) -> ComputedBy:
        found = (executable.computed_by for _, executable in self._executables())
        return reduce(or_, found, ComputedBy())

    def run(self, inputs: Mapping[str, Array], donate: Collection[str] = ()) -> dict[str, Array]:
        if donate:
            refuse_donations(donate, "its program is a pipeline")
        inputs = self.fitted(inputs)
        rows = self.run_stacked({name: array[None] for name, array in inputs.items()}, 1)
        return {name: array[0] for name, array in rows.items()}

    def run_stacked(self, inputs: Mapping[str, Array], count: int) -> dict[str, Array]:
        made = {
            name: np.empty((count, *shape), dtype.numpy)
            for name, (dtype, shape) in self.outputs.items()
        }
        routes = list[_Route]()
        while (start := len(routes)) < count:
            left = self._period - self._batches_since_update if self._period > 1 else count
            part = slice(start, min(count, start + left))
            routes += self._run_together(
                {name: rows[part] for name, rows in inputs.items()},
                {name: rows[part] for name, rows in made.items()},
                part.stop - start,
            )
        return self._gather_outputs(made, routes)

    def _run_together(
        self, inputs: Mapping[str, Array], results: Mapping[str, Array], count: int
    ) -> list[_Route]:
        """
        Runs batches that are in flight together; returns their routes.

        Accumulated gradients change weights only after the last of them.
        """
        if not self._is_consistent:
            raise RunError(
                "a stage failed before a batch was complete: some stages have accumulated more of "
                "it than others",
                hint="write the variables again",
            )
        positions = [(self._batches_since_update + at + 1) % self._period for at in range(count)]
        routes = [self._others if position else self._last for position in positions]
        self._run(_Step(inputs, results, routes, Mailboxes(self._ranks)))
        self._batches_since_update = positions[-1]
        return routes

    def _run(self, step: _Step) -> None:
        """Runs all devices in parallel; an interruption is raised after all have finished."""
        threads = [
            threading.Thread(target=step.run_devices, args=(lane,), name="popgraph-stages")
            for lane in self._lanes
        ]
        for thread in threads:
            thread.start()
        interruption: KeyboardInterrupt | None = None
        while any(thread.is_alive() for thread in threads):
            try:
                for thread in threads:
                    thread.join()
            except KeyboardInterrupt as error:
                interruption = error
        failure = step.failure()
        if failure is not None:
            self._is_consistent = not self._counter
            raise failure
        step.mail.finish()
        if interruption is not None:
            raise interruption

    def _gather_outputs(self, made: dict[str, Array], routes: Sequence[_Route]) -> dict[str, Array]:
        """Gathers each output from the rank that computed it."""
        if self._ranks.size == 1:
            return made
        homes = {name: [route.homes[name] for route in routes] for name in made}
        own = {name: rows for name, rows in made.items() if self._ranks.rank in homes[name]}
        gathered = self._ranks.gather(own)
        return {
            name: np.stack([gathered[rank][name][at] for at, rank in enumerate(ranks)])
            for name, ranks in homes.items()
        }

    @property
    def arena(self) -> int:
        """Sum over the devices of this rank; stages of one device reuse its memory."""
        largest = Counter[int]()
        for device, executable in self._executables():
            largest[device] = max(largest[device], executable.arena)
        return largest.total()

    def _executables(self) -> Iterator[tuple[int, Executable]]:
        """The programs of the stages that this rank runs, with their devices."""
        for route in (self._others, self._last):
            for stage in route.stages.values():
                if stage.executable is not None:
                    yield stage.device, stage.executable

    def read(self, variable: str) -> Array:
        self._check(variable)
        root = self._rank_of[self._homes[variable]]
        here = next(iter(self._held[variable].values()), None)
        value = here.read(variable) if here is not None and root == self._ranks.rank else None
        found: Array | None = self._ranks.broadcast(value, root)
        assert found is not None, "the home of a variable has it"
        return found

    def write(self, variable: str, value: Array) -> None:
        self._check(variable)
        for executable in self._held[variable].values():
            executable.write(variable, value)
        if variable == self._counter:
            self._batches_since_update, self._is_consistent = int(value) % self._period, True

    def _check(self, variable: str) -> None:
        if variable not in self.variables:
            known = ", ".join(map(repr, self.variables)) or "none"
            raise RunError(
                f"the model has no variable {variable!r}", hint=f"its variables are {known}"
            )
