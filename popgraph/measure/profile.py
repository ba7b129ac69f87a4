"""A profile of a program: the time, work and memory of every call of a kernel."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from xdsl.dialects.builtin import FileLineColLoc, ModuleOp, NameLoc
from xdsl.ir import Attribute

from popgraph import compiler
from popgraph.backends.c.print.layout import find_program
from popgraph.backends.c.run.profile import Profile
from popgraph.backends.c.run.trace import Traced, TracedBody
from popgraph.dialects.program.control import UNBOUNDED
from popgraph.dialects.tile import CondOp, LoopOp, RunsPrograms
from popgraph.dialects.tile.program.lifetimes import bytes_in_use, bytes_touched
from popgraph.dialects.tile.program.work import Counter
from popgraph.measure.profile_report import Body, Call, Report
from popgraph.measure.timing import random_model_inputs
from popgraph.passes.base import Compilation
from popgraph.passes.options import Options


def report(
    name: str,
    module: ModuleOp,
    compilation: Compilation,
    threads: int,
    rounds: int,
    options: Options | None = None,
) -> Report:
    """Compiles the module in place, or a step that trains it, and measures it on random inputs."""
    wanted = compiler.for_this_machine(options or Options(), threads)
    compiler.lower(module, compilation, wanted)
    measured = Profile(module, compilation.weights, threads)
    measured.measure(random_model_inputs(measured.executable.inputs), rounds)
    return _described(name, module, measured, threads)


def _described(name: str, module: ModuleOp, measured: Profile, threads: int) -> Report:
    program, counter = find_program(module, "main"), Counter(module)
    described = _Describer(counter, sum(measured.times) or 1)
    in_use = bytes_in_use(program, counter)
    calls = [
        described.call(traced, used) for traced, used in zip(measured.traced, in_use, strict=True)
    ]
    return Report(
        model=name,
        threads=threads,
        microseconds=measured.total / 1e3,
        arena=program.arena.value.data,
        largest_live_set=max(in_use, default=0),
        persistent=program.persistent.value.data,
        calls=calls,
    )


@dataclass(frozen=True)
class _Describer:
    """Makes rows of a report of what was traced."""

    counter: Counter
    whole: int
    """The nanoseconds of all calls of a step."""

    def call(self, traced: Traced, in_use: int) -> Call:
        """A call, and those in its bodies; the memory in use is that of the call of the step."""
        bodies = [self._body(body, in_use) for body in traced.bodies]
        inner = [call for body in bodies for call in body.calls]
        inside = sum(call.microseconds for call in inner)
        microseconds = traced.nanoseconds / 1e3
        described = Call(
            kernel=_label(traced),
            source=source(traced.op.location),
            microseconds=microseconds,
            share=traced.nanoseconds / self.whole,
            flops=sum(call.flops for call in inner),
            moved=sum(call.moved for call in inner),
            in_use=in_use,
            kind=_kind(traced),
            count=traced.count,
            own=max(0.0, microseconds - inside),
            bodies=bodies,
        )
        return described if isinstance(traced.op, RunsPrograms) else self._kernel(described, traced)

    def _kernel(self, described: Call, traced: Traced) -> Call:
        touched = bytes_touched([argument.owner for argument in traced.op.arguments])
        return replace(
            described,
            flops=self.counter.call(traced.op).flops * traced.count,
            moved=touched * traced.count,
        )

    def _body(self, body: TracedBody, in_use: int) -> Body:
        return Body(body.name, body.count, [self.call(call, in_use) for call in body.calls])


def _kind(traced: Traced) -> str:
    return {LoopOp: "loop", CondOp: "branch"}.get(type(traced.op), "kernel")


def _label(traced: Traced) -> str:
    """The name of a kernel; of a branch or a loop, with what it did."""
    op = traced.op
    if not isinstance(op, LoopOp):
        return op.label
    (body,) = traced.bodies
    most = (
        f" of at most {op.turns * traced.count}" if op.ends_early and op.turns != UNBOUNDED else ""
    )
    return f"{body.name}: {body.count}{most} turns"


def source(location: Attribute | None) -> str:
    """The user's name for an operation, and the line where it was written."""
    match location:
        case NameLoc():
            return f"{location.desc.data}  {source(location.location)}".strip()
        case FileLineColLoc():
            return f"{Path(location.filename.data).name}:{location.line.data}"
    return ""
