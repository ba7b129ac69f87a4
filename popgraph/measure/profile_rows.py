"""Converts traced calls of a program to report rows, with the names of the model."""

from __future__ import annotations

from dataclasses import dataclass, replace

from xdsl.dialects.builtin import ModuleOp

from popgraph.backends.tools import Profile, Traced, TracedBody
from popgraph.dialects.locations import source
from popgraph.dialects.program.control_signatures import UNBOUNDED
from popgraph.dialects.tile import CallOp, CondOp, LoopOp
from popgraph.dialects.tile.program.lifetimes import bytes_in_use, bytes_touched
from popgraph.dialects.tile.program.ops import find_program
from popgraph.dialects.tile.program.work import Counter
from popgraph.measure.profile_report import Body, Call


class DescribedProfile:
    """A measured program, and its memory."""

    def __init__(self, module: ModuleOp, measured: Profile) -> None:
        program, self._counter = find_program(module, "main"), Counter(module)
        self._measured = measured
        self._in_use = bytes_in_use(program, self._counter)
        self.arena = program.arena.value.data
        self.persistent = program.persistent.value.data

    @property
    def largest_live_set(self) -> int:
        return max(self._in_use, default=0)

    def calls(self, whole: int) -> list[Call]:
        """The calls of a step; shares are relative to `whole` nanoseconds."""
        rows = _Rows(self._counter, whole or 1)
        pairs = zip(self._measured.traced, self._in_use, strict=True)
        return [rows.call(traced, used) for traced, used in pairs]


@dataclass(frozen=True)
class _Rows:
    """Converts traced calls to rows of a report."""

    counter: Counter
    whole: int
    """The nanoseconds to which shares are relative."""

    def call(self, traced: Traced, in_use: int) -> Call:
        """Converts a call and its bodies; memory in use is that of the outermost call."""
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
        op = traced.op
        return self._kernel(described, op, traced.count) if isinstance(op, CallOp) else described

    def _kernel(self, described: Call, op: CallOp, count: int) -> Call:
        touched = bytes_touched([argument.owner for argument in op.arguments])
        return replace(
            described,
            flops=self.counter.call(op).flops * count,
            moved=touched * count,
            chunks=op.chunks.value.data,
        )

    def _body(self, body: TracedBody, in_use: int) -> Body:
        return Body(body.name, body.count, [self.call(call, in_use) for call in body.calls])


def _kind(traced: Traced) -> str:
    return {LoopOp: "loop", CondOp: "branch"}.get(type(traced.op), "kernel")


def _label(traced: Traced) -> str:
    """The name of a kernel; for a branch or loop, also its number of executions."""
    op = traced.op
    if not isinstance(op, LoopOp):
        return op.label
    (body,) = traced.bodies
    most = (
        f" of at most {op.turns * traced.count}" if op.ends_early and op.turns != UNBOUNDED else ""
    )
    return f"{body.name}: {body.count}{most} turns"
