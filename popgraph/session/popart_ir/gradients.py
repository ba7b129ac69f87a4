"""The backward half of a graph: from the gradient of its loss to those of its variables."""

from __future__ import annotations

from dataclasses import replace

from popgraph.builder.opset.enums import RecomputeType
from popgraph.builder.opset.tensorinfo import TensorInfo
from popgraph.builder.popart.names import GRADIENT
from popgraph.session.popart_ir.gradient_rules import GradientRule, rules_of
from popgraph.session.popart_ir.graph import Kind, Op, OpGraph
from popgraph.support import dtypes


class Gradients:
    """Grows the operators of gradients as PopART does, sums of one gradient among them."""

    def __init__(self, graph: OpGraph, loss: str, scaling: str | None) -> None:
        """`scaling` is the tensor of the host that holds the loss scale, unless it is constant."""
        self._graph, self._loss, self._scaling = graph, loss, scaling
        self._edges: dict[str, list[str]] = {}

    def grow(self) -> None:
        graph = self._graph
        forward = list(graph.ops)
        self._start()
        for op in reversed(forward):
            known = {
                index: gradient
                for index, id in op.outputs.items()
                if (gradient := self._gradient(id)) is not None
            }
            for rule in rules_of(op) if known else ():
                self._add(op, rule, known)
        for id in list(graph.infos):
            self._gradient(id)

    def _start(self) -> None:
        """The gradient of the loss: the loss scale."""
        graph = self._graph
        id, info = GRADIENT + self._loss, graph.infos[self._loss]
        if self._scaling is None:
            graph.add_tensor(id, info, Kind.CONSTANT)
            return
        graph.add_tensor(id, info)
        graph.add_tensor(self._scaling, TensorInfo(info.data_type(), []), Kind.STREAM)
        graph.add(Op("Identity", {0: self._scaling}, {0: id}, backward=True))

    def _gradient(self, id: str) -> str | None:
        """The gradient of a tensor, all of whose readers have given theirs."""
        graph, gradient = self._graph, GRADIENT + id
        if gradient in graph.infos:
            return gradient
        edges = self._edges.get(id)
        if not edges:
            return None
        graph.add_tensor(gradient, graph.infos[id])
        producer = graph.producer(id)
        placed = producer or graph.consumers(id)[0]
        settings = replace(
            placed.settings,
            name=f"GradSum_{gradient}",
            recompute=RecomputeType.Undefined,
            inplace={},
        )
        inputs = dict(enumerate(edges))
        graph.add(Op("Sum", inputs, {0: gradient}, settings=settings, backward=True))
        return gradient

    def _add(self, op: Op, rule: GradientRule, known: dict[int, str]) -> None:
        given = [index for index in rule.gives if self._has_gradient(op, index)]
        inputs = {
            place: id
            for place, word in enumerate(rule.reads)
            if (id := self._read(op, word, known)) is not None
        }
        if not given or not any(word in rule.reads for word in map("g{}".format, known)):
            return
        outputs = {}
        for place, index in enumerate(rule.gives):
            if index in given:
                edge = f"{GRADIENT}{op.number}_{index}"
                outputs[place] = self._graph.add_tensor(edge, self._graph.infos[op.inputs[index]])
                self._edges.setdefault(op.inputs[index], []).append(edge)
        settings = replace(op.settings, recompute=RecomputeType.Undefined, inplace={})
        made = Op(rule.type, inputs, outputs, dict(op.attributes), settings, backward=True)
        self._graph.add(made)

    def _has_gradient(self, op: Op, index: int) -> bool:
        id = op.inputs.get(index)
        if id is None:
            return False
        return dtypes.BY_POPART[self._graph.infos[id].data_type()].is_float

    def _read(self, op: Op, word: str, known: dict[int, str]) -> str | None:
        tensors = {"g": known, "i": op.inputs, "o": op.outputs}[word[0]]
        return tensors.get(int(word[1:]))
