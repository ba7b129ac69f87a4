"""The certificate of a proof: the promises, their methods and assumptions, as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from popgraph.passes.validation.kernel_accesses import Accesses

PROMISES = (
    "every index is inside its memory",
    "every element that is read was written before, by the kernel itself, by an earlier call, or "
    "by the caller",
    "every element of a result is written once, after literals that fill halos and padding; "
    "accumulators are read in between",
    "chunks of a kernel write different elements, and read none that another chunk writes",
    "pieces of a concatenation do not overlap; a view has as many bytes as its source",
    "every call finds in memory the values that its launch reads: no other value has replaced them",
    "a result that shares memory with an operand is written after the operand's last read",
    "constants and inputs are never written; outputs and variables hold their values at the end",
)
"""The statements of a certificate."""


@dataclass
class Certificate:
    """The result of a successful proof."""

    passed: str
    """The pass after which the module was proven."""
    sizes: str = ""
    """The sizes for which it holds."""
    kernels: list[tuple[str, Accesses]] = field(default_factory=list)
    """Each kernel with its setting, in order."""
    buffers: list[str] = field(default_factory=list)
    """A line for each program, and for each call of it."""
    checks: list[str] = field(default_factory=list)
    """The checks of indices that the program itself makes in each run."""
    promises: Sequence[str] = PROMISES

    @property
    def summary(self) -> str:
        """One line: the number of proofs, and of assumptions."""
        accesses = sum(one.sites for _, one in self.kernels)
        assumed = len({fact for _, one in self.kernels for fact in one.assumed})
        return (
            f"proven after {self.passed}: {len(self.kernels)} kernels with {accesses} accesses"
            f"{', ' + self.sizes if self.sizes else ''}, {assumed} assumptions"
        )

    def __str__(self) -> str:
        return "\n".join([*self._lines(), ""])

    def _lines(self) -> Iterator[str]:
        yield f"Certificate of the program after {self.passed}"
        if self.sizes:
            yield f"Holds for {self.sizes}."
        yield ""
        yield "Proven:"
        yield from (f"- {one}" for one in self.promises)
        yield ""
        yield "Assumed:"
        facts = sorted({fact for _, one in self.kernels for fact in one.assumed})
        yield from (f"- {ASSUMPTIONS[fact]}" for fact in facts)
        if not facts:
            yield "- nothing: no index and no trip count depends on data"
        yield from (f"- checked in each run: {one}" for one in self.checks)
        yield ""
        yield "Kernels:"
        for name, one in self.kernels:
            ways = [f"{one.sites - one.listed} linear"]
            ways += [f"{one.listed} with listed iterations"] if one.listed else []
            ways += [f"{one.ordered} memories in order of time"] if one.ordered else []
            assumed = f"; assumed: {', '.join(sorted(one.assumed))}" if one.assumed else ""
            yield f"- {name}: {one.sites} accesses, {', '.join(ways)}{assumed}"
        yield ""
        yield "Memory:"
        yield from self.buffers


ASSUMPTIONS = {
    "indices": "indices that are data lie within their axis: the model's own operators check "
    "them, the program reports others, or its kernels clamp them",
    "trip counts": "trip counts that are data stay within the axis that the loop runs over",
    "writes": "elements that data choose to write are all written, and before they are read",
    "ends": "blocks of rows reach past the end of a size, whose results no kernel uses",
    "rows": "rows at indices that are data differ between chunks",
}
"""The sentence for each fact that depends on data."""
