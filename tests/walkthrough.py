"""Writes the IR in docs/how-it-works.md: `python -m tests.walkthrough`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp

from popgraph import compiler
from popgraph.dialects.program import WeightStore, graphs_of
from popgraph.passes.base import Pass
from popgraph.passes.changes import HEX, SHOWN_DIGITS, difference
from popgraph.passes.observer import Observer
from popgraph.passes.options import Options
from popgraph.support.machine import MACHINES

PAGE = Path(__file__).parent.parent / "docs/how-it-works.md"
NETWORK = re.compile(r"^```pgraph\n# (\S+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
SHOWN = re.compile(
    r"^```(mlir|diff)\n(// (\S+) after (\S+?)(?:: (\S+))?\n)(.*?)^```", re.MULTILINE | re.DOTALL
)
"""A block `// net.pgraph after some-pass: fma`: a graph, or a kernel with this name prefix."""
MACHINE = "avx2"
"""A fixed machine of eight lanes, so that the page is short and the same everywhere."""

Texts = dict[str, str]
"""Texts of a module's kernels by name; the graph has the empty name."""


@dataclass
class Steps(Observer):
    """Keeps the texts of a module before and after each pass."""

    found: dict[str, tuple[Texts, Texts]] = field(default_factory=dict)

    @contextmanager
    def watching(self, step: Pass, module: ModuleOp, weights: WeightStore) -> Iterator[None]:
        before = texts_of(module)
        yield
        self.found[step.name] = before, texts_of(module)


def texts_of(module: ModuleOp) -> Texts:
    graphs = "".join(str(graph.block.parent_op()) for graph in graphs_of(module))
    shown = HEX.sub(lambda found: f'"{found[1][:SHOWN_DIGITS]}..."', graphs)
    kernels = {op.sym_name.data: str(op) for op in module.ops if isinstance(op, func.FuncOp)}
    return {"": shown, **kernels}


@cache
def steps_of(network: str) -> dict[str, tuple[Texts, Texts]]:
    """The texts of a network by pass, on the machine of the page."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "network.pgraph"
        path.write_text(network)
        module, compilation = compiler.load(path)
    observer = Steps()
    compiler.lower(module, compilation, Options(machine=MACHINES[MACHINE]), observer=observer)
    return observer.found


def page(text: str) -> str:
    """The page with the current IR."""
    networks = dict(NETWORK.findall(text))

    def current(found: re.Match[str]) -> str:
        language, heading, name, step, kernel, _ = found.groups(default="")
        before, after = steps_of(networks[name])[step]
        chosen = next(one for one in after if one.startswith(kernel) and bool(one) == bool(kernel))
        shown = after[chosen]
        if language == "diff":
            shown = difference(before[chosen], shown, step)
        return f"```{language}\n{heading}{shown}\n```"

    return SHOWN.sub(current, text)


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
