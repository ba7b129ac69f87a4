"""The use of ROM and RAM of exported C, derived from the memory plans of its programs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from xdsl.dialects.builtin import ModuleOp

from popgraph.backends.c.export import deltas
from popgraph.backends.c.export.image import size_of
from popgraph.backends.c.export.interface import Interface
from popgraph.dialects.tile.program.memory_use import ACTIVATIONS, GRADIENTS, SCRATCH, Peak, peak_of
from popgraph.dialects.tile.program.ops import find_program
from popgraph.dialects.tile.program.work import Counter
from popgraph.support.tables import table

ACCUMULATED, STATE, WEIGHTS = "accumulated gradients", "optimizer state", "weights"
_ACCUMULATOR = "Accum___"


@dataclass(frozen=True)
class Row:
    """A kind of content, and its bytes."""

    name: str
    bytes: int
    about: str = ""


@dataclass(frozen=True)
class MemoryUse:
    """The use of memory of a model."""

    interface: Interface
    peak: Peak
    """The peak of the program with the largest arena, which all programs share."""

    @staticmethod
    def of(interface: Interface, modules: Sequence[ModuleOp], programs: Sequence[str]) -> MemoryUse:
        """The use of memory of a model with these programs."""
        peaks = [
            peak_of(find_program(module, name), Counter(module))
            for module, name in zip(modules, programs, strict=True)
        ]
        return MemoryUse(interface, max(peaks, key=lambda one: one.arena))

    @property
    def ram(self) -> list[Row]:
        """The content of RAM at the peak; the bytes add up to those of the model's memory."""
        state, peak = self._state, self.peak
        rows = [Row(name, size, _VARIABLES[name]) for name, size in state.items() if size]
        if self.interface.step is None:
            if live := sum(peak.roles.values()):
                rows.append(Row("intermediate values", live))
        else:
            rows += [Row(name, size, _ROLES[name]) for name, size in peak.roles.items() if size]
        whole = self.interface.ram_bytes
        if rest := whole - sum(one.bytes for one in rows):
            rows.append(Row("unused", rest, "alignment, and gaps between values at the peak"))
        return rows

    @property
    def rom(self) -> list[Row]:
        """The content of ROM without code."""
        image = self.interface.image
        places = [place for one in self.interface.programs for place in one.image.firsts]
        firsts = sum({place.offset: place.bytes for place in places}.values())  # Equal ones share.
        rows = [Row("initial weights", firsts)] if firsts else []
        if rest := image.rom_bytes - firsts:
            rows.append(Row("constants", rest))
        return rows

    @property
    def _state(self) -> dict[str, int]:
        """The bytes of variables by kind."""
        found = dict.fromkeys((WEIGHTS, STATE, ACCUMULATED), 0)
        for _, slot in self.interface.variables.values():
            is_weight = "___" not in slot.label
            kind = ACCUMULATED if slot.label.startswith(_ACCUMULATOR) else STATE
            found[WEIGHTS if is_weight else kind] += size_of(slot)
        return found

    @property
    def _callers(self) -> int:
        tensors = [*self.interface.inputs.values(), *self.interface.outputs.values()]
        return sum(size_of(slot) for _, slot in tensors)

    @property
    def at(self) -> str:
        """The operation at the peak; "" without RAM."""
        if not any(self.peak.roles.values()):
            return ""
        name, _, line = self.peak.where.partition("  ")
        if not name:
            return "an update of a weight" if self.interface.step else ""
        return f"{'the gradient of ' * self.peak.is_gradient}{name}{f' ({line})' * bool(line)}"

    def advice(self) -> Iterator[str]:
        """Ways to need less RAM, the largest use first."""
        step, roles, state = self.interface.step, self.peak.roles, self._state
        if step is None:
            return
        smaller = "a smaller batch with --accumulate"
        again = "" if step.recomputes else "--recompute checkpoints, or "
        plain = "--optimize size, or " if self.interface.form.optimize == "speed" else ""
        kept = "`clip` needs all at once; else " if step.clips and not step.accumulators else ""
        ways = [
            (roles.get(ACTIVATIONS, 0), f"activations: {again}{smaller}"),
            (roles.get(GRADIENTS, 0), f"gradients: {kept}{smaller}"),
            (roles.get(SCRATCH, 0), f"scratch: {plain}{smaller}"),
            (state[STATE], "optimizer state: SGD without momentum has none"),
            (state[WEIGHTS], "weights: with --train-only, the others stay in ROM"),
            (state[ACCUMULATED], "accumulated gradients: none if each step updates"),
        ]
        yield from (way for size, way in sorted(ways, reverse=True)[:3] if size)

    def table(self) -> str:
        """A table of ROM and RAM, the peak, and ways to need less, for people."""
        rows = [("ROM", one) for one in self.rom] + [("RAM", one) for one in self.ram]
        rows.append(("", Row("inputs and outputs", self._callers, "the caller's")))
        lines = [table([(where, one.name, f"{one.bytes:>9,}", one.about) for where, one in rows])]
        if self.at:
            lines.append(f"RAM is at its peak in {self.at}")
        if advice := list(self.advice()):
            lines += ["To need less RAM, the largest use first:", *(f"  {one}" for one in advice)]
        return "\n".join(lines)

    def comment(self) -> str:
        """Lines of a C comment with the use of RAM."""
        listed = [f" *   {one.bytes:>9}  {one.name}\n" for one in self.ram]
        return "".join([" *\n * RAM at the peak, in bytes:\n", *listed]) if listed else ""

    def json(self) -> str:
        """The table as JSON, with the layout of deltas."""
        step = self.interface.step
        found = {
            "rom": [asdict(one) for one in self.rom],
            "ram": [asdict(one) for one in self.ram],
            "inputs_and_outputs": self._callers,
            "peak": self.at,
        }
        if step is not None:
            found["accumulate"] = step.period
            found["delta"] = deltas.layout(self.interface)
        return json.dumps(found, indent=2) + "\n"


_VARIABLES = {
    WEIGHTS: "state",
    STATE: "state",
    ACCUMULATED: "state",
}
_ROLES = {
    ACTIVATIONS: "kept for the backward pass",
    GRADIENTS: "of activations and weights",
    SCRATCH: "packed, padded and transformed operands, temporaries",
}
