"""The page's data of a program on IPUs: steps, liveness, and the memory of each tile."""

from __future__ import annotations

from base64 import b64encode
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from zlib import compress

from xdsl.dialects.builtin import NameLoc
from xdsl.ir import Operation, SSAValue

from popgraph.dialects.element_types import element_bytes
from popgraph.dialects.levels import GRAPHCORE, ONNX
from popgraph.dialects.onnx.types import describe
from popgraph.dialects.program import ConstantOp, VariableOp
from popgraph.ipu.memory import LiveTensor
from popgraph.ipu.model import Call, IpuModel, Part
from popgraph.ipu.report import content, overflow
from popgraph.ipu.stages import held_bytes
from popgraph.support.arrays import Array

Row = dict[str, Any]
HINT = (
    "a smaller batch (--dim), more IPUs, or all tiles of one: --device ipu:4 are four of the "
    "second generation"
)


def ipu_view(
    model: IpuModel, nodes: Mapping[Operation, Row], core: Sequence[Row], shown: Sequence[Row]
) -> Row:
    """
    The page's data of a program on IPUs.

    `nodes` describe its mapped operations, and `core` its graphcore level, through which operations
    are traced to the model. `shown` is the graphcore level of the C program on the same page: links
    lead to the corresponding nodes there.
    """
    return _Reader(model, nodes, core, shown).found()


@dataclass
class Vectors:
    """Arrays with a number per tile, deduplicated."""

    rows: dict[bytes, int] = field(default_factory=dict)

    def number(self, values: Array) -> int:
        """The index of an array."""
        return self.rows.setdefault(values.astype("<f8").tobytes(), len(self.rows))

    def text(self) -> str:
        """
        All arrays, concatenated as f64, compressed by zlib, in base64.

        Lossless; their regularity compresses them to about 1 %.
        """
        return b64encode(compress(b"".join(self.rows), 9)).decode()


class _Reader:
    """Converts a model to rows."""

    def __init__(
        self,
        model: IpuModel,
        nodes: Mapping[Operation, Row],
        core: Sequence[Row],
        shown: Sequence[Row],
    ) -> None:
        self._model, self._nodes, self._core = model, nodes, core
        self._twins = equivalent_nodes(core, shown)
        self._vectors = Vectors()
        self._ops: list[Row] = []
        self._numbers: dict[Operation, int] = {}
        self._times = {id(step): times for step, times in model.executed()}
        self._rows: list[Row] = []
        self._inputs = {value: name for name, value in model.graph.inputs.items()}

    def found(self) -> Row:
        model, memory = self._model, self._model.memory
        report = content(model)
        self._add(model.parts, report.pop("steps"), above=None)
        places = {moment.op: at for at, moment in enumerate(memory.moments)}
        steps = [places[part.op] for part in model.parts]
        moments = [memory.moments[at] for at in steps]
        needed = report.pop("memory")
        return {
            **report,
            "steps": self._rows,
            "liveness": {
                "total": [one.total for one in moments],
                "largest": [one.largest for one in moments],
                "temporary": [self._vectors.number(one.temporary) for one in moments],
            },
            "memory": {
                "bytesPerTile": needed["bytesPerTile"],
                "fullestTile": needed["fullestTile"],
                "overflowing": len(needed["overflowing"]),
                "always": {n: self._vectors.number(v) for n, v in memory.by_category.items()},
                "peak": self._vectors.number(memory.peak),
            },
            "tensors": [self._tensor(held, steps) for held in memory.tensors],
            "operations": self._ops,
            "vectors": {"tiles": model.ipu.total_tiles, "zlib": self._vectors.text()},
            "overflow": {"what": f"Out of memory: {overflow(memory)}", "where": "", "hint": HINT}
            if memory.overflowing
            else None,
        }

    def _add(self, parts: Sequence[Part], report_rows: Sequence[Row], above: int | None) -> None:
        """Adds steps with their report rows; the steps of a branch or loop follow it."""
        for part, row in zip(parts, report_rows, strict=True):
            number = len(self._rows)
            inner = {name: row.pop(name) for name in ("copies", "bodies") if name in row}
            for name in ("kind", "source"):  # The operation has more about both.
                row.pop(name, None)
            found = row | {
                "operation": self._operation(part.op),
                "above": above,
                "times": self._times.get(id(part), 0),
            }
            self._rows.append(found)
            if isinstance(part, Call):
                self._add(part.copies, inner["copies"], number)
                for body, rows in zip(part.bodies, inner["bodies"], strict=True):
                    self._add(body, rows, number)
                found |= part.split()

    def _operation(self, op: Operation) -> int:
        """The index of an operation's row."""
        if op not in self._numbers:
            self._numbers[op] = len(self._ops)
            node = self._nodes[op]
            core = node["sources"]
            self._ops.append(
                {
                    "kind": node["kind"],
                    "name": node["name"],
                    "text": node["text"],
                    "types": [one["type"] for one in node["outputs"]],
                    GRAPHCORE: [self._twins[one] for one in core if one in self._twins],
                    ONNX: _union(self._core[one]["sources"] for one in core),
                }
            )
        return self._numbers[op]

    def _tensor(self, held: LiveTensor, steps: Sequence[int]) -> Row:
        """The row of a tensor, with the first and the last step of its lifetime."""
        value = held.value
        return {
            "name": self._name(value),
            "type": _type(value),
            "category": held.category,
            "first": bisect_left(steps, held.first),
            "last": bisect_right(steps, held.last) - 1,
            "bytes": self._vectors.number(held.on(self._model.ipu.total_tiles)),
            "operation": self._step_of(value),
        }

    def _step_of(self, value: SSAValue) -> int | None:
        """
        The operation that computes a tensor in a step, otherwise the first that reads it in one.
        """
        if isinstance(value.owner, Operation) and value.owner in self._numbers:
            return self._numbers[value.owner]
        found: list[int] = []
        values = [value]
        while values:
            for use in values.pop().uses:
                if use.operation in self._numbers:
                    found.append(self._numbers[use.operation])
                else:  # It only gives the tensor another name.
                    values += use.operation.results
        return min(found, default=None)

    def _name(self, value: SSAValue) -> str:
        match value.owner:
            case VariableOp() as variable:
                return variable.variable.text
            case ConstantOp() as constant:
                return _written_name(constant) or value.name_hint or "constant"
            case Operation() as op:
                node = self._nodes[op]
                return str(node["name"] or node["kind"])
        return self._inputs[value]


def _written_name(op: Operation) -> str:
    """The user's name of an operation."""
    return op.location.desc.data if isinstance(op.location, NameLoc) else ""


def _type(value: SSAValue) -> str:
    """The type of a tensor, with its width in memory if that is smaller."""
    bits = 8 * held_bytes(value)
    narrower = bits < 8 * element_bytes(value.type)
    return f"{describe(value.type)}, in {bits} bits" if narrower else describe(value.type)


def equivalent_nodes(own: Sequence[Row], shown: Sequence[Row]) -> dict[int, int]:
    """
    Maps the nodes of one graph to equivalent nodes of another.

    Both come from one model through slightly different passes. Nodes are equivalent if kind, name,
    source nodes and result types agree; several equivalent nodes are paired in order.
    """
    known: dict[str, list[int]] = {}
    for node in shown:
        known.setdefault(_signature(node), []).append(node["id"])
    places = {likeness: iter(numbers) for likeness, numbers in known.items()}
    found = {}
    for node in own:
        twin = next(places.get(_signature(node), iter(())), None)
        if twin is not None:
            found[node["id"]] = twin
    return found


def _signature(node: Row) -> str:
    types = [one["type"] for one in node["outputs"]]
    return f"{node['kind']} {node['name']} {node['sources']} {types}"


def _union(lists: Iterable[Iterable[int]]) -> list[int]:
    return list(dict.fromkeys(one for numbers in lists for one in numbers))
