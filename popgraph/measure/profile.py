"""Profiles a model: time, work and memory of every kernel call and host step."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from xdsl.dialects.builtin import ModuleOp

from popgraph import compiler
from popgraph.backends.registry import DEFAULT, backend_named
from popgraph.backends.tools import Profile
from popgraph.compiler.lowering import same_meaning
from popgraph.dialects.levels import ONNX, level_of
from popgraph.dialects.locations import source
from popgraph.dialects.program import WeightStore
from popgraph.measure.inputs import random_inputs
from popgraph.measure.profile_report import Body, Call, PassTime, Report
from popgraph.measure.profile_rows import DescribedProfile
from popgraph.measure.recorded_steps import RanNode, RanSegment, run_steps
from popgraph.measure.timing import random_model_inputs
from popgraph.passes.base import Compilation, Pass
from popgraph.passes.observer import Observer
from popgraph.passes.onnx.partition import HostStep, host_nodes
from popgraph.passes.options import Options
from popgraph.support.errors import NeedsHostError


def report(
    name: str,
    module: ModuleOp,
    compilation: Compilation,
    threads: int,
    rounds: int,
    options: Options | None = None,
) -> Report:
    """Compiles the module, or its training step, in place, and measures it on random inputs."""
    request = compiler.BuildRequest(module, compilation, options or Options(), DEFAULT, threads)
    trained = request.options.training is not None
    if level_of(module) == ONNX and host_nodes(module, trained=trained):
        return _hosted(name, request, rounds)
    passes = PassTimes.from_environment(same_meaning)
    try:
        measured = _program(request, passes)
    except NeedsHostError as error:
        if not request.may_split:
            raise
        return _hosted(name, request.before_lowering(error), rounds, error)
    measured.measure(random_model_inputs(measured.executable.inputs), rounds)
    described = DescribedProfile(request.module, measured)
    return Report(
        model=name,
        threads=threads,
        microseconds=measured.total / 1e3,
        arena=described.arena,
        largest_live_set=described.largest_live_set,
        persistent=described.persistent,
        calls=described.calls(sum(measured.times)),
        passes=passes.found,
    )


@dataclass
class PassTimes(Observer):
    """Measures the time of every pass and of the C compiler."""

    found: list[PassTime] = field(default_factory=list)

    @contextmanager
    def watching(self, step: Pass, module: ModuleOp, weights: WeightStore) -> Iterator[None]:
        with self.timed(step.name), super().watching(step, module, weights):
            yield

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.found.append(PassTime(name, (time.perf_counter() - start) * 1e6))


def _program(request: compiler.BuildRequest, passes: PassTimes) -> Profile:
    """Compiles a module with static shapes for profiling."""
    wanted = compiler.for_this_machine(request.options, request.threads)
    compiler.lower(request.module, request.compilation, wanted, observer=passes)
    tools = backend_named(request.backend).tools
    with passes.timed("C compiler"):
        return tools.profile(request.module, request.compilation.weights, request.threads)


def _hosted(
    name: str, request: compiler.BuildRequest, rounds: int, reason: NeedsHostError | None = None
) -> Report:
    """Measures each step of a model on the results of the previous steps for random inputs."""
    steps = _Steps(request, rounds)
    inputs = random_inputs(request.module)
    for ran in run_steps(request, request.steps(reason), inputs):
        steps.take(ran)
    return steps.report(name)


def host_time(ran: RanNode, threads: int, rounds: int) -> int:
    """The fastest time of a host step in nanoseconds, by the same clock as kernels."""
    clock = time.thread_time_ns if threads == 1 else time.perf_counter_ns
    times = []
    for _ in range(rounds):
        start = clock()
        ran.again()
        times.append(clock() - start)
    return min(times)


@dataclass(frozen=True)
class _Segment:
    """A compiled step with its measurements."""

    number: int
    described: DescribedProfile
    profile: Profile

    @property
    def nanoseconds(self) -> int:
        return sum(self.profile.times)

    def call(self, whole: int) -> Call:
        """
        The step as a call with nested kernel calls; shares are relative to `whole` nanoseconds.
        """
        calls = self.described.calls(whole)
        return Call(
            kernel=f"step {self.number + 1}: compiled",
            source="",
            microseconds=self.nanoseconds / 1e3,
            share=self.nanoseconds / whole,
            flops=sum(call.flops for call in calls),
            moved=sum(call.moved for call in calls),
            in_use=self.described.largest_live_set,
            kind="segment",
            bodies=[Body("", 1, calls)],
        )


@dataclass(frozen=True)
class _Host:
    """A step that Python computes."""

    number: int
    step: HostStep
    nanoseconds: int

    def call(self, whole: int) -> Call:
        """The step as a call; its share is relative to `whole` nanoseconds."""
        return Call(
            kernel=f"step {self.number + 1}: {self.step.op.op_type} in Python",
            source=source(self.step.op.location),
            microseconds=self.nanoseconds / 1e3,
            share=self.nanoseconds / whole,
            flops=0,
            moved=0,
            in_use=0,
            kind="host",
        )


@dataclass
class _Steps:
    """The measurements of the steps so far."""

    request: compiler.BuildRequest
    rounds: int
    taken: list[_Segment | _Host] = field(default_factory=list)
    passes: PassTimes = field(default_factory=lambda: PassTimes.from_environment(same_meaning))

    def take(self, ran: RanSegment | RanNode) -> None:
        """Measures a step; host steps run as often as kernels."""
        number = len(self.taken)
        if isinstance(ran, RanNode):
            nanoseconds = host_time(ran, self.request.threads, self.rounds)
            self.taken.append(_Host(number, ran.step, nanoseconds))
            return
        profile = _program(ran.request, self.passes)
        profile.measure(ran.inputs, self.rounds)
        self.taken.append(_Segment(number, DescribedProfile(ran.request.module, profile), profile))

    def report(self, name: str) -> Report:
        """All steps in order; the total is the sum of their times."""
        whole = sum(one.nanoseconds for one in self.taken) or 1
        segments = [one.described for one in self.taken if isinstance(one, _Segment)]
        return Report(
            model=name,
            threads=self.request.threads,
            microseconds=whole / 1e3,
            arena=sum(one.arena for one in segments),
            largest_live_set=max((one.largest_live_set for one in segments), default=0),
            persistent=sum(one.persistent for one in segments),
            calls=[one.call(whole) for one in self.taken],
            passes=self.passes.found,
        )
