"""C of branches and loops: a function that passes tables of memory to the programs it runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from xdsl.ir import SSAValue

from popgraph.backends.c.print.layout import Layout
from popgraph.dialects.program.control import UNBOUNDED, Branching, Looping
from popgraph.dialects.tile import CondOp, LoopOp, PrepareProgramOp, RunsPrograms
from popgraph.dialects.tile.program.work import size

TABLE = "table"


def control_function(
    name: str,
    op: RunsPrograms,
    layout: Layout,
    addresses: Mapping[SSAValue, str],
    symbols: Mapping[str, str],
) -> str:
    """The function of a step that runs other programs; `symbols` maps these to C names."""
    printer = _Printer(op, layout, addresses, symbols)
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
class _Printer:
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
        for source, target, one, other in zip(carried, finals, first, second, strict=True):
            yield f"    {TABLE}[{source}] = {TABLE}[{target}];"
            yield (
                f"    {TABLE}[{target}] = {TABLE}[{source}] == (void *){self._at(one)} ? "
                f"(void *){self._at(other)} : (void *){self._at(one)};"
            )
        if op.go is not None:
            yield f"    go = *(const u8 *){self._at(op.group('next_go')[0])};"
        yield "}"
        # An early exit may leave results in the spare memory, no iteration leaves them in inputs.
        for source, final in zip(carried, op.finals, strict=True):
            yield (
                f"if ({TABLE}[{source}] != (void *){self._at(final)}) "
                f"__builtin_memcpy({self._at(final)}, {TABLE}[{source}], {size(final.type)});"
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
