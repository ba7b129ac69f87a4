"""Drawings of a session's IR as Graphviz's .dot files."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from popgraph.popart.api.options import SessionOptions
from popgraph.popart.api.tensorinfo import TensorInfo
from popgraph.popart.exceptions import popart_exception, writing
from popgraph.popart.ir import Ir, Operator
from popgraph.support.writing import write_file

_FORWARD = ("FWD0", "FWD1")
CHECKS = (*_FORWARD, "BWD0", "PREALIAS", "MAINLOOPS", "FINAL")
"""PopART's points of a compilation. The first two show the forward pass, the others all."""

_ALL = "ALL"
_ENVIRONMENT = "POPART_DOT_CHECKS"


class DotFiles:
    """Writes `<check>_<graph>.dot` for each check that an option or the environment names."""

    def __init__(self, options: SessionOptions) -> None:
        self._options = options
        named = [*options.dotChecks, *filter(None, os.environ.get(_ENVIRONMENT, "").split(":"))]
        self._wanted = {_check(name) for name in named}
        if _ALL in self._wanted:
            self._wanted = set(CHECKS)

    def draw(self, made: Callable[[], Ir]) -> None:
        """Draws the graphs of an IR, which is made if any check is wanted."""
        for check in CHECKS if self._wanted else ():
            if check not in self._wanted:
                continue
            ir = made()
            graphs = {
                graph: [op for op in ir.operators(graph) if op.is_forward or check not in _FORWARD]
                for graph in ir.graphNames()
            }
            self._check_range(sum(map(len, graphs.values())))
            for graph, ops in graphs.items():
                name = "".join(one if one.isalnum() or one in "._-" else "_" for one in graph)
                path = Path(self._options.logDir or ".", f"{check.lower()}_{name}.dot")
                lines = self._lines(graph, ops, ir.infos())
                with writing(f"failed to open file `{path}'"):
                    write_file(path, ["\n".join(lines).encode()])

    def _check_range(self, count: int) -> None:
        """Refuses drawings of no operator."""
        first, final = self._options.firstDotOp, self._options.finalDotOp
        if count and max(0, first) >= min(final, count):
            raise popart_exception(
                f"Invalid dot range ({first}, {final}) with schedule of size {count}, as no Ops "
                "will be exported to the .dot file",
                "SessionOptions.firstDotOp",
            )

    def _lines(
        self, graph: str, ops: Sequence[Operator], infos: Mapping[str, TensorInfo]
    ) -> Iterator[str]:
        shown = ops[self._options.firstDotOp : self._options.finalDotOp]
        yield f"digraph {_quoted(graph)} {{"
        for number, op in enumerate(shown):
            yield f"  op{number} [shape=box, label={_quoted(self._label(op))}];"
            for id in op.inputs.values():
                yield f"  {_quoted(id)} -> op{number};"
            for id in op.outputs.values():
                yield f"  op{number} -> {_quoted(id)};"
        tensors = dict.fromkeys(
            id for op in shown for id in (*op.inputs.values(), *op.outputs.values())
        )
        for id in tensors:
            yield f"  {_quoted(id)} [label={_quoted(f'{id}: {infos[id]}')}];"
        yield "}"

    def _label(self, op: Operator) -> str:
        name = op.name if self._options.dotOpNames else ""
        return f"{op.type} ({name})" if name else op.type


def _check(name: str) -> str:
    found = name.upper()
    if found not in (*CHECKS, _ALL):
        raise popart_exception(
            f"Unrecognised dot check '{name}'",
            "SessionOptions.dotChecks",
            f"one of {', '.join((*CHECKS, _ALL))}, or {_ENVIRONMENT} with colons between them",
        )
    return found


def _quoted(text: str) -> str:
    return json.dumps(text)
