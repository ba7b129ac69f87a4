"""Predicts the time of a training step on many ranks from measurements on one rank."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf, log2

import numpy as np
from xdsl.dialects import func
from xdsl.dialects.builtin import MemRefType, ModuleOp

from popgraph.backends.base import Executable
from popgraph.backends.registry import DEFAULT, backend_named
from popgraph.backends.tools import Profile
from popgraph.compiler import BuildRequest, for_this_machine, lower
from popgraph.dialects.element_types import element_bytes
from popgraph.dialects.tile import CallOp
from popgraph.dialects.tile.messages import ReceiveOp, SendOp
from popgraph.measure.timing import random_model_inputs
from popgraph.passes.base import Compilation
from popgraph.passes.options import Options
from popgraph.support.arrays import Array
from popgraph.support.charts.chart import Chart, Curve
from popgraph.support.ranks.communicator import ALL_REDUCE, Communicator, Exchange
from popgraph.support.shapes import prod

SAMPLE_BYTES = 4 * 2**20
"""Bytes of a message long enough to measure bandwidth."""


@dataclass(frozen=True)
class Network:
    """The network between ranks, full duplex and without contention."""

    bandwidth: float
    """Bytes per second that a rank sends while it receives as many."""
    latency: float
    """Seconds from the start of a message to its first byte."""
    addition: float = inf
    """Bytes per second that a rank adds to its own when it reduces."""

    def all_reduce(self, size: int, ranks: int) -> float:
        """
        Seconds of an all-reduce of `size` bytes.

        As a ring, or by recursive halving where that takes fewer rounds; both move 2 size (ranks -
        1) / ranks bytes.
        """
        if ranks == 1:
            return 0.0
        moved = size * (ranks - 1) / ranks
        transfer = 2 * moved / self.bandwidth + moved / self.addition
        rounds = min(2 * (ranks - 1), 2 * log2(ranks))
        return rounds * self.latency + transfer


@dataclass(frozen=True)
class Span:
    """Computation of a rank up to the next message that it sends or waits for."""

    seconds: float
    sends: int = 0
    """Bytes of the message sent at the end; 0: the rank waits for the next message instead."""


@dataclass(frozen=True)
class Step:
    """A training step, measured on one rank."""

    alone: float
    """Seconds of a step without communication."""
    spans: tuple[Span, ...]
    rest: float
    """Seconds after the last message."""

    @property
    def computing(self) -> float:
        """Seconds of computation in a step with communication."""
        return sum(span.seconds for span in self.spans) + self.rest

    @property
    def messages(self) -> tuple[int, ...]:
        """The bytes of each message, in sending order."""
        return tuple(span.sends for span in self.spans if span.sends)

    def slowed(self, times: float) -> Step:
        """The same step with all computation `times` slower, because ranks share a core."""
        spans = tuple(replace(span, seconds=span.seconds * times) for span in self.spans)
        return Step(self.alone * times, spans, self.rest * times)

    def seconds(self, network: Network, ranks: int) -> float:
        """Seconds of a step: messages are sent one at a time, overlapped with computation."""
        now = free = 0.0
        arrivals: list[float] = []
        received = iter(arrivals)
        for span in self.spans:
            now += span.seconds
            if span.sends:
                free = max(now, free) + network.all_reduce(span.sends, ranks)
                arrivals.append(free)
            else:
                now = max(now, next(received))
        return now + self.rest


@dataclass(frozen=True)
class Prediction:
    """The predicted step on a number of ranks."""

    ranks: int
    seconds: float
    efficiency: float
    """Fraction of the throughput of as many ranks without communication."""
    communication: float
    """Seconds of all messages."""
    hidden: float
    """Fraction of the communication that overlaps computation."""


def predictions(step: Step, network: Network, most: int) -> list[Prediction]:
    """Predictions for 1, 2, 4 ... ranks, up to `most`."""
    counts = [2**power for power in range(most.bit_length()) if 2**power < most] + [most]
    return [_predicted(step, network, ranks) for ranks in counts]


def _predicted(step: Step, network: Network, ranks: int) -> Prediction:
    seconds = step.alone if ranks == 1 else step.seconds(network, ranks)
    seconds_of_messages = sum(network.all_reduce(size, ranks) for size in step.messages)
    waited = max(0.0, seconds - step.computing) if ranks > 1 else 0.0
    hidden = max(0.0, 1 - waited / seconds_of_messages) if seconds_of_messages else 1.0
    return Prediction(ranks, seconds, min(1.0, step.alone / seconds), seconds_of_messages, hidden)


def efficiency_chart(title: str, found: Mapping[str, Sequence[Prediction]]) -> Chart:
    """Efficiency in per cent over log2 of the number of ranks."""
    curves = [
        Curve(name, [(log2(one.ranks), 100 * one.efficiency) for one in rows], number % 3)
        for number, (name, rows) in enumerate(found.items())
    ]
    return Chart(title, tuple(curves))


# Measurement


@dataclass(frozen=True)
class MeasuredTraining:
    """A training step to be compiled for one rank or for several."""

    module: ModuleOp
    compilation: Compilation
    options: Options
    threads: int = 1

    def request(self, ranks: int) -> BuildRequest:
        """The build request of one of several ranks; gradients are averaged."""
        training = self.options.training
        assert training is not None, "only training tells gradients"
        optimizer = replace(training.optimizer, accumulation=ranks, ranks=ranks, mean=ranks > 1)
        options = replace(self.options, training=replace(training, optimizer=optimizer))
        return BuildRequest(self.module.clone(), self.compilation, options, DEFAULT, self.threads)

    def measured(self, rounds: int) -> Step:
        """The times of a step on this machine: the fastest of `rounds`."""
        alone = self._profile(1, rounds)[0].total / 1e9
        profile, module = self._profile(2, rounds)
        scale = profile.total / max(1, sum(profile.times)) / 1e9
        spans, seconds = [], 0.0
        for call, nanoseconds in zip(profile.calls, profile.times, strict=True):
            seconds += nanoseconds * scale
            message = _message_of(call, module) if isinstance(call, CallOp) else None
            if message is not None:
                spans.append(Span(seconds, message))
                seconds = 0.0
        return Step(alone, tuple(spans), seconds)

    def _profile(self, ranks: int, rounds: int) -> tuple[Profile, ModuleOp]:
        request = self.request(ranks)
        lower(request.module, request.compilation, for_this_machine(request.options, self.threads))
        tools = backend_named(request.backend).tools
        profile = tools.profile(request.module, request.compilation.weights, self.threads)
        profile.measure(random_model_inputs(profile.executable.inputs), rounds)
        return profile, request.module

    def step_here(self, here: Communicator, rounds: int) -> float:
        """Seconds of a step on all ranks of this job: median over rounds of the slowest rank."""
        program = self.request(here.size).executable()
        inputs = random_model_inputs(program.inputs)
        return _median(here, rounds, partial(_run, program, inputs))


def _run(program: Executable, inputs: Mapping[str, Array]) -> None:
    program.run(inputs)


def _message_of(call: CallOp, module: ModuleOp) -> int | None:
    """The bytes that a call sends, or 0 if it waits for a message; None if it does neither."""
    name = call.callee.string_value()
    for function in module.ops:
        if isinstance(function, func.FuncOp) and function.sym_name.data == name:
            for op in function.body.block.ops:
                if isinstance(op, SendOp):
                    assert isinstance(op.source.type, MemRefType)
                    return prod(op.source.type.get_shape()) * element_bytes(op.source.type)
                if isinstance(op, ReceiveOp):
                    return 0
    return None


def cores_here() -> int:
    """Number of cores available to this process."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def measured_here(trained: MeasuredTraining, here: Communicator, rounds: int) -> Step:
    """
    The step of the slowest rank of this job, on all ranks.

    At most as many ranks measure at once as there are cores. With more ranks than cores, the times
    are scaled by ranks per core.
    """
    fitting = max(1, cores_here() // trained.threads)
    step = trained.measured(rounds) if here.rank < fitting else None
    here.barrier(patient=True)
    found = [one for one in here.gather(step) if one is not None]
    slowest = max(found, key=lambda one: one.computing)
    return slowest.slowed(max(1.0, here.size / fitting))


def network_here(here: Communicator, rounds: int) -> Network:
    """Latency and bandwidth between the ranks of this job, from a short and a long message."""
    everybody = Exchange(ALL_REDUCE, 1, here.size)

    def seconds_of_messages(size: int) -> Callable[[], None]:
        array = np.ones(size // 4, np.float32)
        return lambda: here.start(everybody, array, array)()

    short, long = (_median(here, rounds, seconds_of_messages(size)) for size in (8, SAMPLE_BYTES))
    latency = short / (2 * log2(here.size))
    moved = 2 * SAMPLE_BYTES * (here.size - 1) / here.size
    return Network(moved / max(long - short, 1e-9), latency)


def _median(here: Communicator, rounds: int, work: Callable[[], None]) -> float:
    """Median over rounds of the seconds of the slowest rank."""
    return float(np.median(list(_slowest(here, rounds, work))))


def _slowest(here: Communicator, rounds: int, work: Callable[[], None]) -> Iterator[float]:
    work()
    for _ in range(rounds):
        here.barrier()
        start = time.perf_counter()
        work()
        yield max(here.gather(time.perf_counter() - start))
