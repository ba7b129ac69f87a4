"""C of a program: a function for a step, one for loading, and those of the programs it runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from xdsl.dialects.builtin import MemRefType
from xdsl.ir import SSAValue

from popgraph.backends.c.print import types
from popgraph.backends.c.print.control import control_function
from popgraph.backends.c.print.layout import Layout
from popgraph.backends.c.print.unit import Kernel
from popgraph.dialects.tile import BufferOp, CallOp, ProgramOp, RunsPrograms

ENTRIES = {"prepare": "void *const *memory", "run": "void *const *memory", "stop": "void"}
"""What can be called of a program, by how its name ends, with the parameters."""


MOST_CALLS = 1000
"""In one function: GCC's time grows faster than a function does."""

NOINLINE = "static __attribute__((noinline)) "
"""What GCC is not to make part of the function that calls it."""


def print_program(program: ProgramOp, layout: Layout, kernels: Sequence[Kernel]) -> str:
    """The functions of `ENTRIES`, and those that they call."""
    name = program.sym_name.data
    parts = [*_sections(program, layout, {kernel.name: kernel.symbol for kernel in kernels})]
    parts.append(f"void {name}_stop(void) {{ popgraph_stop_workers(); }}\n")
    return "\n".join(parts)


def print_callees(layout: Layout, kernels: Sequence[Kernel]) -> str:
    """The functions of all programs that one runs, each behind those that it runs itself."""
    names = {kernel.name: kernel.symbol for kernel in kernels}
    parts = dict[str, str]()
    _print_callees(layout, names, parts)
    return "\n".join(parts.values())


def _print_callees(layout: Layout, names: Mapping[str, str], parts: dict[str, str]) -> None:
    for name, callee in layout.callees.items():
        if name not in parts:
            _print_callees(callee, names, parts)
            sections = _sections(callee.program, callee, names)
            parts[name] = "\n".join(
                f"static {text}" if _is_entry(text) else text for text in sections
            )


def _is_entry(text: str) -> bool:
    return not text.startswith("static ")


def _sections(program: ProgramOp, layout: Layout, names: Mapping[str, str]) -> Iterator[str]:
    """A function that loads a program and one for a step, behind the functions that they call."""
    name = program.sym_name.data
    for ending, block in (("prepare", program.prepare.block), ("run", program.body.block)):
        lines, helpers = list[str](), list[str]()
        buffers: dict[SSAValue, str] = {}
        for op in block.ops:
            if isinstance(op, BufferOp):
                buffers[op.memory] = _address(op, layout)
            elif isinstance(op, CallOp):
                callee = names[op.callee.string_value()]
                turn = layout.turn_slot if ending == "run" else None
                _call(op, callee, buffers, turn, f"{name}_{ending}_{len(lines)}", lines, helpers)
            elif isinstance(op, RunsPrograms):
                helper = f"{name}_{ending}_{len(lines)}"
                helpers.append(control_function(helper, op, layout, buffers))
                lines.append(f"{helper}(memory);")
        yield from (*helpers, *_bounded(f"{name}_{ending}", lines))


def _bounded(name: str, lines: Sequence[str]) -> Iterator[str]:
    """A function of these calls; of more than `MOST_CALLS`, one that calls others in turn."""
    if len(lines) > MOST_CALLS:
        starts = range(0, len(lines), MOST_CALLS)
        parts = [f"{name}_part_{number}" for number in range(len(starts))]
        for part, start in zip(parts, starts, strict=True):
            yield f"{NOINLINE}{_function(part, lines[start : start + MOST_CALLS])}"
        lines = [f"{part}(memory);" for part in parts]
    yield _function(name, lines)


def _function(name: str, lines: Sequence[str]) -> str:
    body = "".join(f"    {line}\n" for line in lines) or "    (void)memory;\n"
    return f"void {name}(void *const *memory) {{\n{body}}}\n"


def _address(op: BufferOp, layout: Layout) -> str:
    memory = op.memory.type
    assert isinstance(memory, MemRefType)
    base, offset = f"memory[{layout.slot_number(op)}]", op.offset.value.data
    address = f"((char *){base} + {offset})" if offset else base
    return f"({types.pointer(memory)}){address}"


def _call(
    op: CallOp,
    callee: str,
    buffers: Mapping[SSAValue, str],
    turn: int | None,
    name: str,
    lines: list[str],
    helpers: list[str],
) -> None:
    chunks = op.chunks.value.data
    arguments = [buffers[argument] for argument in op.arguments]
    if chunks == 1:
        lines.append(f"{callee}({', '.join(['0', *arguments])});")
        return
    helpers.append(
        f"static void {name}(i64 chunk, void *const *memory) {{\n"
        f"    {callee}({', '.join(['chunk', *arguments])});\n}}\n"
    )
    threads = "(i64)(intptr_t)memory[0]"
    if turn is None:
        lines.append(f"popgraph_share({threads}, {chunks}, {name}, memory);")
    else:
        number = f"*(const i64 *)memory[{turn}]"
        lines.append(f"popgraph_share_turn({threads}, {chunks}, {number}, {name}, memory);")
