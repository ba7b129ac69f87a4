"""IR files of a session: Graphviz .dot files, and the debug info."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from popgraph.dialects.onnx import OnnxOp, value_name
from popgraph.dialects.onnx.op import to_python
from popgraph.popart.api.debugging import DebugInfos, Json, being_written
from popgraph.popart.api.options import SessionOptions
from popgraph.popart.api.tensorinfo import TensorInfo
from popgraph.popart.exceptions import popart_exception, writing
from popgraph.popart.ir import Ir, Operator
from popgraph.popart.model.model import SessionModel
from popgraph.support.writing import write_file

_FORWARD = ("FWD0", "FWD1")
CHECKS = (*_FORWARD, "BWD0", "PREALIAS", "MAINLOOPS", "FINAL")
"""PopART's dump points. The first two show the forward pass, the others everything."""

_ALL = "ALL"
_ENVIRONMENT = "POPART_DOT_CHECKS"


class DotFiles:
    """Writes `<check>_<graph>.dot` for each check enabled by an option or the environment."""

    def __init__(self, options: SessionOptions) -> None:
        self._options = options
        named = [*options.dotChecks, *filter(None, os.environ.get(_ENVIRONMENT, "").split(":"))]
        self._wanted = {_check(name) for name in named}
        if _ALL in self._wanted:
            self._wanted = set(CHECKS)

    def draw(self, made: Callable[[], Ir]) -> None:
        """Draws the graphs of the IR, which is built only if a check is enabled."""
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
        """Refuses an empty range of operators."""
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


def note_session(model: SessionModel, made: Callable[[], Ir], weights: str) -> None:
    """
    Records the nodes, inputs and weights of a model, and the operators and tensors of its IR.

    The hierarchy is: builder call, node, operator. `weights` is "Const" or "Variable".
    """
    infos = being_written()
    if infos is None:
        return
    above = _note_model(infos, model)
    ir = made()
    for graph in ir.graphNames():
        for number, op in enumerate(ir.operators(graph)):
            node = next((above[id] for id in op.outputs.values() if id in above), None)
            values: dict[str, Json] = {
                "category": "op",
                "instanceId": str(number),
                "opid": node[1] if node is not None and op.is_forward else op.type,
                "inputs": list[Json](op.inputs.values()),
                "outputs": list[Json](op.outputs.values()),
                "attributes": dict[str, Json](op.attributes),
                "graphId": graph,
            }
            parent = None if node is None else node[0]
            infos.add("popart", values, name=op.name, parent=parent)
    kinds = dict.fromkeys(model.weight_names, weights) | dict.fromkeys(
        model.graph.input_names, "Stream"
    )
    for id, info in ir.infos().items():
        about = {"category": "tensor", "tensorId": id, "type": kinds.get(id, "ActGrad")}
        infos.add("popart", {**about, **_shown(info)}, name=id)


_Above = dict[str, tuple[int, str]]
"""{tensor: (entry of its producer, PopART's name of the operator)}."""


def _note_model(infos: DebugInfos, model: SessionModel) -> _Above:
    found: _Above = {}
    known = model.infos()
    for initializer in model.graph.initializers:
        id = initializer.value_name.text
        _note_variable(infos, id, {"tensorProto": {"name": id, **_proto(known.get(id))}})
    for id in model.graph.input_names:
        shape = {"shape": _text(known[id])} if id in known else {}
        _note_variable(infos, id, {"valueInfoProto": {"name": id, "type": dict[str, Json](shape)}})
    for op in model.graph.nodes:
        outputs = [id for id in op.output_names if id]
        parent = next((infos.made_by[id] for id in outputs if id in infos.made_by), None)
        number = infos.add("onnx", _node(op, model), name=op.node_name, parent=parent)
        opid = f"{op.domain or 'ai.onnx'}.{op.op_type}:{op.since_version or 1}"
        found |= dict.fromkeys(outputs, (number, opid))
    return found


def _note_variable(infos: DebugInfos, id: str, values: Mapping[str, Json]) -> None:
    told = {"category": "variable", **values}
    infos.add("onnx", told, name=id, parent=infos.made_by.get(id))


def _node(op: OnnxOp, model: SessionModel) -> dict[str, Json]:
    attributes = {n: to_python(one, model.weights) for n, one in op.onnx_attributes().items()}
    inputs = ["" if one is None else value_name(one) for one in op.input_values()]
    return {
        "category": "op",
        "input": list[Json](inputs),
        "output": list[Json](op.output_names),
        "opName": op.node_name,
        "opType": op.op_type,
        "domain": op.domain,
        "attribute": {name: _plain(value) for name, value in attributes.items()},
    }


def _plain(value: object) -> Json:
    return value if isinstance(value, bool | int | float | str) else str(value)


def _proto(info: TensorInfo | None) -> dict[str, Json]:
    if info is None:
        return {}
    return {"dims": _text(info), "dataType": info.data_type()}


def _shown(info: TensorInfo) -> dict[str, Json]:
    return {"shape": _text(info), "elementType": info.data_type_lcase()}


def _text(info: TensorInfo) -> str:
    """A shape in PopART's format."""
    return f"[{' '.join(map(str, info.shape()))}]"
