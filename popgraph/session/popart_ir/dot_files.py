"""Drawings of PopART's IR between its transformations, as Graphviz's .dot files."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from popgraph.builder.opset.exceptions import popart_exception
from popgraph.session.options import SessionOptions
from popgraph.session.popart_ir.graph import Op, OpGraph
from popgraph.support.writing import write_file

CHECKS = ("FWD0", "FWD1", "BWD0", "PREALIAS", "MAINLOOPS", "FINAL")
"""Where a drawing may be made: as read, after patterns, with gradients, before and after loops."""

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

    @property
    def are_wanted(self) -> bool:
        return bool(self._wanted)

    def draw(self, check: str, graphs: Sequence[OpGraph]) -> None:
        """Draws the graphs, if this check is wanted."""
        for graph in graphs if check in self._wanted else ():
            name = "".join(one if one.isalnum() or one in "._-" else "_" for one in graph.name)
            path = Path(self._options.logDir or ".", f"{check.lower()}_{name}.dot")
            write_file(path, ["\n".join(self._lines(graph)).encode()])

    def _lines(self, graph: OpGraph) -> Iterator[str]:
        options = self._options
        shown = graph.ops[options.firstDotOp : options.finalDotOp]
        yield f"digraph {_quoted(graph.name)} {{"
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
            yield f"  {_quoted(id)} [label={_quoted(f'{id}: {graph.infos[id]}')}];"
        yield "}"

    def _label(self, op: Op) -> str:
        name = op.settings.name if self._options.dotOpNames else ""
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
