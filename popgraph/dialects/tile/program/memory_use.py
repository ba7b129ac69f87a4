"""The use of the arena at the peak of a program, by the roles of the values in it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from popgraph.dialects.locations import GRADIENT, notes, source
from popgraph.dialects.tile.program.lifetimes import (
    ArenaMap,
    Lifetime,
    arena_bytes,
    bytes_in_use,
    calls,
    lifetimes,
    written_by,
)
from popgraph.dialects.tile.program.ops import BufferOp, CallOp, ProgramOp
from popgraph.dialects.tile.program.program_control import RunsPrograms
from popgraph.dialects.tile.program.work import Counter, size

ACTIVATIONS, GRADIENTS, SCRATCH = "activations", "gradients", "scratch"
"""
Roles of values. Activations are kept by the forward pass for the backward pass. Gradients go from
the backward pass of one node to another node, or to an update. All others are scratch: packed,
padded and transformed operands, recomputed activations, and temporaries of an update.
"""


@dataclass(frozen=True)
class Peak:
    """The arena of a program, and its use at the call that needs most of it."""

    arena: int
    """Bytes of the arena."""
    roles: dict[str, int]
    """Live bytes at the peak, by role."""
    where: str
    """The node of the call, and its source line; "" for an update of a variable."""
    is_gradient: bool = False
    """Whether the call computes a gradient of the node."""

    @property
    def unused(self) -> int:
        """Bytes between the live values."""
        return self.arena - sum(self.roles.values())


def peak_of(program: ProgramOp, counter: Counter) -> Peak:
    """The peak of a program, derived from its memory plan."""
    steps, used = calls(program), bytes_in_use(program, counter)
    arena = arena_bytes(program)
    if not used:
        return Peak(arena, {}, "")
    at = max(range(len(used)), key=used.__getitem__)
    forward, roles = _forward(program, counter), dict.fromkeys((ACTIVATIONS, GRADIENTS, SCRATCH), 0)
    for one in lifetimes(program, counter):
        if one.first <= at <= one.last:
            roles[_role(one, steps, forward)] += one.size
    location = steps[at].location
    return Peak(arena, roles, source(location), GRADIENT in notes(location))


def _role(value: Lifetime, steps: list[CallOp | RunsPrograms], forward: Collection[int]) -> str:
    if value.first in forward:
        return SCRATCH if value.last in forward else ACTIVATIONS
    writer = steps[value.first]
    if GRADIENT not in notes(writer.location):
        return SCRATCH
    readers = steps[value.first + 1 : value.last + 1]
    nodes = {source(one.location) for one in readers if _touches(one, value)}
    return GRADIENTS if nodes - {source(writer.location)} else SCRATCH


def _touches(call: CallOp | RunsPrograms, value: Lifetime) -> bool:
    """Whether a call has an operand in the memory of a value."""
    owners = (argument.owner for argument in call.arguments)
    return any(
        isinstance(op, BufferOp)
        and op.space.data == "arena"
        and op.offset.value.data < value.offset + value.size
        and value.offset < op.offset.value.data + size(op.memory.type)
        for op in owners
    )


def _forward(program: ProgramOp, counter: Counter) -> set[int]:
    """
    The calls that outputs depend on, by number.

    The others only serve updates of variables: gradients and recomputed activations.
    """
    arena, steps = ArenaMap(program), calls(program)
    needed, found = arena.nothing(), set[int]()
    for number in reversed(range(len(steps))):
        reads, writes = arena.touched(steps[number], counter)
        if (needed & writes).any() or _writes_output(steps[number], counter):
            found.add(number)
            needed = (needed & ~writes) | reads
    return found


def _writes_output(call: CallOp | RunsPrograms, counter: Counter) -> bool:
    owners = (call.arguments[number].owner for number in written_by(call, counter))
    return any(isinstance(op, BufferOp) and op.space.data == "output" for op in owners)
