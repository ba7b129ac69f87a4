"""The memory of a program: its arena over time, and its persistent bytes."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from xdsl.dialects.builtin import ModuleOp

from popgraph.dialects.tile.program.lifetimes import bytes_in_use, lifetimes
from popgraph.dialects.tile.program.ops import find_program
from popgraph.dialects.tile.program.work import Counter


def memory(module: ModuleOp) -> dict[str, Any]:
    """Bytes in use at each call of a step, and the buffers of the arena by offset and lifetime."""
    program, counter = find_program(module, "main"), Counter(module)
    return {
        "arena": program.arena.value.data,
        "persistent": program.persistent.value.data,
        "lower_bound": program.lower_bound.value.data,
        "in_use": bytes_in_use(program, counter),
        "pieces": [asdict(one) for one in lifetimes(program, counter)],
    }
