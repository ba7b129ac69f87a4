"""C of a program: functions to load it and to run a step, also for its callees."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import MemRefType
from xdsl.ir import Operation, SSAValue

from popgraph.backends.c.print import types
from popgraph.backends.c.print.layout import Layout
from popgraph.backends.c.print.trace import Place, Site, probed, probes
from popgraph.backends.c.print.unit import Kernel
from popgraph.dialects.locations import source
from popgraph.dialects.program.control_signatures import UNBOUNDED, Branching, Looping
from popgraph.dialects.tile import (
    BufferOp,
    CallOp,
    CondOp,
    LoopOp,
    PrepareProgramOp,
    ProgramOp,
    RunsPrograms,
)
from popgraph.dialects.tile.program.program_control import runs_programs
from popgraph.dialects.tile.program.work import size

ENTRIES = {"prepare": "void *const *memory", "run": "void *const *memory", "stop": "void"}
"""The entry points of a program: suffixes of their names, with parameters."""

MOST_CALLS = 1000
"""
Calls of a function: GCC's time grows faster than the length of a function.

With this bound, a chain of 100,000 matmuls takes GCC 6 s.
"""

NOINLINE = "static __attribute__((noinline)) "
"""Keeps GCC from inlining all parts of a step into one long function."""


def print_program(program: ProgramOp, layout: Layout, kernels: Sequence[Kernel]) -> str:
    """The entry points of a program, after the functions that they call."""
    name = program.sym_name.data
    parts = [*_sections(program, layout, {kernel.name: kernel for kernel in kernels})]
    parts.append(f"void {name}_stop(void) {{ popgraph_stop_workers(); }}\n")
    return "\n".join(parts)


def print_callees(layout: Layout, kernels: Sequence[Kernel], *, commented: bool = False) -> str:
    """
    The functions of all callees of a program, each after its own callees.

    If `commented`, each begins with its role in the model.
    """
    by_name = {kernel.name: kernel for kernel in kernels}
    parts, abouts = dict[str, str](), dict[str, str]()
    _print_callees(layout, by_name, parts, abouts)
    texts = (f"{abouts[name]}{text}" if commented else text for name, text in parts.items())
    return "\n".join(texts)


def _print_callees(
    layout: Layout, kernels: Mapping[str, Kernel], parts: dict[str, str], abouts: dict[str, str]
) -> None:
    for name, callee in layout.callees.items():
        if name not in parts:
            _print_callees(callee, kernels, parts, abouts)
            sections = _sections(callee.program, callee, kernels)
            abouts[name] = _about(name, layout.program)
            parts[name] = "\n".join(
                f"static {text}" if _is_entry(text) else text for text in sections
            )


def _about(name: str, caller: ProgramOp) -> str:
    """A comment with the role of a program in the branch or loop that runs it."""
    for op in caller.body.block.ops:
        if isinstance(op, RunsPrograms) and name in op.programs:
            return f"{comment(f'{op.role(name)} {source(op.location)}'.strip())}\n"
    return ""


def _is_entry(text: str) -> bool:
    return not text.startswith("static ")


def _sections(program: ProgramOp, layout: Layout, kernels: Mapping[str, Kernel]) -> Iterator[str]:
    """The functions that load a program and run a step, after the functions that they call."""
    yield from _section(program, "prepare", layout, kernels)
    yield from _section(program, "run", layout, kernels)


def _section(
    program: ProgramOp, ending: str, layout: Layout, kernels: Mapping[str, Kernel]
) -> Iterator[str]:
    """The entry point with a suffix, after the functions that it calls."""
    is_run = ending == "run"
    iteration = layout.iteration_slot if is_run else None
    section = _Section(f"{program.sym_name.data}_{ending}", layout, kernels, iteration)
    symbols = {callee: callee for callee in layout.callees}
    for op in (program.body if is_run else program.prepare).block.ops:
        section.add(op, symbols)
    return section.functions()


def print_step(layout: Layout, kernels: Sequence[Kernel]) -> str:
    """The functions of a step alone, without `prepare`; all of them are static."""
    parts = dict[str, str]()
    _print_steps(layout, {kernel.name: kernel for kernel in kernels}, parts)
    return "\n".join(parts.values())


def _print_steps(layout: Layout, kernels: Mapping[str, Kernel], parts: dict[str, str]) -> None:
    name, steps = layout.program.sym_name.data, layout.program.body.block.ops
    called = {one for op in steps for one in runs_programs(op)}
    for callee in sorted(called - parts.keys()):
        _print_steps(layout.callees[callee], kernels, parts)
    texts = _section(layout.program, "run", layout, kernels)
    parts[name] = "\n".join(f"static {text}" if _is_entry(text) else text for text in texts)


def print_traced(site: Site, kernels: Sequence[Kernel]) -> str:
    """The entry points of a program that counts and times its calls."""
    by_name = {kernel.name: kernel for kernel in kernels}
    parts = [probes(site)]
    for callee in site.callees():
        *helpers, run = _traced(callee, by_name, f"trace_began({callee.counter});")
        parts += [*helpers, f"static {run}"]
    parts += _traced(site, by_name, "trace_calibrate();")
    # Nothing to prepare: the plain program of a profile has filled the same memory.
    parts.append(_function(f"{site.symbol}_prepare", []))
    parts.append(f"void {site.symbol}_stop(void) {{ popgraph_stop_workers(); }}\n")
    return "\n".join(parts)


def _traced(site: Site, kernels: Mapping[str, Kernel], first: str) -> Iterator[str]:
    """The function of a step, beginning with the statement `first`, after functions it calls."""
    section = _Section(f"{site.symbol}_run", site.layout, kernels, site.layout.iteration_slot)
    section.lines.append(first)
    places = {place.op: place for place in site.places}
    for op in site.layout.program.body.block.ops:
        section.add(op, *_of_place(places.get(op)))
    return section.functions()


def _of_place(place: Place | None) -> tuple[dict[str, str], int | None]:
    """The C names of the programs that a traced step runs, and its counter."""
    if place is None:
        return {}, None
    return {body.name: body.symbol for body in place.bodies}, place.counter


class _Section:
    """A function of a program and its helpers; in a loop, with the slot of the iteration number."""

    def __init__(
        self, name: str, layout: Layout, kernels: Mapping[str, Kernel], iteration: int | None
    ) -> None:
        self._name, self._layout, self._kernels = name, layout, kernels
        self._iteration = iteration
        self.lines, self._helpers = list[str](), list[str]()
        self._buffers: dict[SSAValue, str] = {}

    def add(self, op: Operation, symbols: Mapping[str, str], counter: int | None = None) -> None:
        """Adds an operation; `symbols` maps programs to C names, a `counter` times it."""
        helper = f"{self._name}_{len(self.lines)}"
        if isinstance(op, BufferOp):
            self._buffers[op.memory] = _address(op, self._layout)
        elif isinstance(op, CallOp):
            callee = self._kernels[op.callee.string_value()]
            _call(op, callee, self._buffers, self._iteration, helper, self.lines, self._helpers)
        elif isinstance(op, RunsPrograms):
            self._helpers.append(control_function(helper, op, self._layout, self._buffers, symbols))
            self.lines.append(f"{helper}(memory);")
        packing = self._layout.packing_slot(op)
        # The slot is null if the packing has been filled for another program of the model.
        if packing is not None:
            self.lines[-1] = f"if (memory[{packing}]) {self.lines[-1]}"
        if counter is not None:
            self.lines[-1] = probed(counter, self.lines[-1])

    def functions(self) -> Iterator[str]:
        yield from (*self._helpers, *_bounded(self._name, self.lines))


def _bounded(name: str, lines: Sequence[str]) -> Iterator[str]:
    """A function of these calls, or of calls of parts if there are more than `MOST_CALLS`."""
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
    slot, offset = layout.locate(op)
    base = f"memory[{slot}]"
    address = f"((char *){base} + {offset})" if offset else base
    return f"({types.pointer(memory)}){address}"


def _call(
    op: CallOp,
    callee: Kernel,
    buffers: Mapping[SSAValue, str],
    iteration: int | None,
    name: str,
    lines: list[str],
    helpers: list[str],
) -> None:
    chunks = op.chunks.value.data
    arguments = [buffers[argument] for argument in op.arguments]
    # Without the pool: a thread takes about 200 cycles to claim a chunk (`chunk_start_cycles`).
    if chunks == 1:
        lines.append(callee.call("0", arguments))
        return
    helpers.append(
        f"static void {name}(i64 chunk, void *const *memory) {{\n"
        f"    {callee.call('chunk', arguments)}\n}}\n"
    )
    threads = "(i64)(intptr_t)memory[0]"
    if iteration is None:
        lines.append(f"popgraph_share({threads}, {chunks}, {name}, memory);")
    else:
        # Without other threads, odd iterations run backwards: they begin with what caches hold.
        number = f"*(const i64 *)memory[{iteration}]"
        lines.append(f"popgraph_share_turn({threads}, {chunks}, {number}, {name}, memory);")


def comment(text: str) -> str:
    """A C comment of any text: a name from a model may contain `*/` or end in a backslash."""
    plain = re.sub(r"[^ -~]|\\", "?", text)
    return f"/* {plain.replace('*/', '*?').replace('/*', '?*')} */"


# Branches and loops: functions that pass tables of memory to the programs that they run.

TABLE = "table"


def control_function(
    name: str,
    op: RunsPrograms,
    layout: Layout,
    addresses: Mapping[SSAValue, str],
    symbols: Mapping[str, str],
) -> str:
    """The function of a step that runs other programs; `symbols` maps these to C names."""
    printer = _ControlPrinter(op, layout, addresses, symbols)
    match op:
        case PrepareProgramOp():
            lines = list(printer.preparation(op))
        case CondOp():
            lines = list(printer.branch(op))
        case LoopOp():
            lines = list(printer.loop(op))
        case _:
            raise AssertionError(f"no C for {op.name}")
    body = "".join(f"    {line}\n" for line in lines)
    return f"static void {name}(void *const *memory) {{\n{body}}}\n"


@dataclass(frozen=True)
class _ControlPrinter:
    """Writes the statements of one step."""

    op: RunsPrograms
    layout: Layout
    """The table of the program that contains the step."""
    addresses: Mapping[SSAValue, str]
    symbols: Mapping[str, str]

    def preparation(self, op: PrepareProgramOp) -> Iterator[str]:
        (name,) = op.programs
        yield self._table(name, {}, {})
        yield f"{self.symbols[name]}_prepare({TABLE});"

    def branch(self, op: CondOp) -> Iterator[str]:
        inputs = _named(Branching.input_names(len(op.captured)), self._all(op.captured))
        outputs = _named(Branching.output_names(len(op.outputs)), self._all(op.outputs))
        for opening, name in zip(
            (f"if (*(const u8 *){self._at(op.predicate[0])}) {{", "} else {"),
            op.programs,
            strict=True,
        ):
            yield opening
            yield f"    {self._table(name, inputs, outputs)}"
            yield f"    {self.symbols[name]}_run({TABLE});"
        yield "}"

    def loop(self, op: LoopOp) -> Iterator[str]:
        (name,) = op.programs
        callee = self.layout.callees[name]
        groups = len(op.carried), len(op.scanned), len(op.captured)
        input_names = Looping.input_names(*groups)
        output_names = Looping.output_names(op.go is not None, groups[0], len(op.stacked))
        given = [op.turn[0], *op.carried, *op.scanned, *op.captured]
        # Iterations write the two memories alternately. An even, fixed count begins with the spare
        # one, so that the last iteration writes the final one and nothing is copied.
        first, second = (op.finals, op.spares)
        if not op.ends_early and op.turns % 2 == 0:
            first, second = second, first
        made = [*op.group("next_go"), *first, *op.stacked]
        inputs = _named(input_names, self._all(given))
        outputs = _named(output_names, self._all(made))
        yield from self._cleared(op)
        yield self._table(name, inputs, outputs)
        places = [callee.slot_number_of("input", one) for one in input_names]
        targets = [callee.slot_number_of("output", one) for one in output_names]
        carried = places[1 : 1 + groups[0]]
        scanned = places[1 + groups[0] : 1 + groups[0] + groups[1]]
        steering = int(op.go is not None)
        finals = targets[steering : steering + groups[0]]
        stacked = targets[steering + groups[0] :]
        yield from self._opening(op)
        at = f"{op.turns - 1} - turn" if op.reverse is not None else "turn"
        yield f"    const i64 at = {at};"
        yield f"    *(i64 *){TABLE}[{places[0]}] = at;"
        for values, slots in ((op.scanned, scanned), (op.stacked, stacked)):
            for value, slot in zip(values, slots, strict=True):
                stride = size(value.type) // op.turns if op.turns else 0
                yield f"    {TABLE}[{slot}] = (char *){self._at(value)} + at * {stride};"
        yield f"    {self.symbols[name]}_run({TABLE});"
        for read, written, one, other in zip(carried, finals, first, second, strict=True):
            yield f"    {TABLE}[{read}] = {TABLE}[{written}];"
            yield (
                f"    {TABLE}[{written}] = {TABLE}[{read}] == (void *){self._at(one)} ? "
                f"(void *){self._at(other)} : (void *){self._at(one)};"
            )
        if op.go is not None:
            yield f"    go = *(const u8 *){self._at(op.group('next_go')[0])};"
        yield "}"
        # An early exit may leave results in the spare memory, no iteration leaves them in inputs.
        for read, final in zip(carried, op.finals, strict=True):
            yield (
                f"if ({TABLE}[{read}] != (void *){self._at(final)}) "
                f"__builtin_memcpy({self._at(final)}, {TABLE}[{read}], {size(final.type)});"
            )

    def _cleared(self, op: LoopOp) -> Iterator[str]:
        """Clears stacked outputs: rows of iterations that do not run are zero."""
        for value in op.stacked if op.ends_early else ():
            yield f"__builtin_memset({self._at(value)}, 0, {size(value.type)});"

    def _opening(self, op: LoopOp) -> Iterator[str]:
        """The head of the loop."""
        turns, go = str(op.turns), ""
        if op.limit is not None:
            yield f"i64 turns = *(const i64 *){self._at(op.limit)};"
            # A limit beyond the bound would write past the last row of stacked outputs.
            if op.turns != UNBOUNDED:
                yield f"if (turns > {op.turns}) turns = {op.turns};"
            turns = "turns"
        elif op.turns == UNBOUNDED:
            turns = "INT64_MAX"
        if op.go is not None:
            yield f"u8 go = *(const u8 *){self._at(op.go)};"
            go = "go && "
        yield f"for (i64 turn = 0; {go}turn < {turns}; turn++) {{"

    def _table(self, name: str, inputs: Mapping[str, str], outputs: Mapping[str, str]) -> str:
        """Declares the table of memory that a program is called with."""
        callee = self.layout.callees[name]
        own = {
            "threads": "memory[0]",
            "arena": next(map(self._at, self.op.group("scratch")), "0"),
            "persistent": self._persistent(name),
        }
        entries = [own.get(slot.space, "0") for slot in callee.slots]
        for key, _ in callee.constants():
            entries[callee.slot_number_of(*key)] = f"memory[{self.layout.slot_number_of(*key)}]"
        for space, named in (("input", inputs), ("output", outputs)):
            for label, address in named.items():
                entries[callee.slot_number_of(space, label)] = f"(void *){address}"
        return f"void *{TABLE}[{len(entries)}] = {{{', '.join(entries)}}};"

    def _persistent(self, name: str) -> str:
        """The address of the persistent memory of a program; 0 if it has none."""
        held = [
            one
            for one in self.op.programs
            if self.layout.callees[one].program.persistent.value.data
        ]
        pieces = dict(zip(held, self.op.group("persistent"), strict=True))
        return self._at(pieces[name]) if name in pieces else "0"

    def _at(self, value: SSAValue) -> str:
        return self.addresses[value]

    def _all(self, values: Sequence[SSAValue]) -> list[str]:
        return [self._at(value) for value in values]


def _named(names: Sequence[str], addresses: Sequence[str]) -> dict[str, str]:
    return dict(zip(names, addresses, strict=True))
