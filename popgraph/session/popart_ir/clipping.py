"""How PopART clips gradients: the operators that scale them down to a norm."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from popgraph.builder.opset.exceptions import popart_exception
from popgraph.builder.opset.tensorinfo import TensorInfo
from popgraph.passes.optimizer_spec import ClipNorm
from popgraph.session.popart_ir.graph import Context, Op, OpGraph, Settings
from popgraph.session.popart_ir.placement import copy_to
from popgraph.session.popart_ir.schedule import scheduled

_NORM = "GlobalNorm___"
_BOUND, _SUM = "clipByNorm", "normsSum"


def clip_gradients(graph: OpGraph, groups: Sequence[ClipNorm], *, accumulates: bool) -> None:
    """Scales the gradients of each group so that their norm is at most the group's."""
    for number, group in enumerate(groups):
        read = [_gradient(graph, op) for op in _updates(graph, group.weights)]
        if read:
            _Clip(graph, number, after_batches=accumulates).run(group.maximum, read)
    if groups:
        graph.ops = scheduled(graph)  # the first update waits for all gradients of its group


def _updates(graph: OpGraph, weights: Sequence[str]) -> list[Op]:
    """What changes these weights or slices of them; without any, all that is trained."""
    found = [op for op in graph.ops if op.type in _READERS]
    if not weights:
        return found
    origins = {op: _origin(graph, op.input(0)) for op in found}
    for id in weights:
        if id not in origins.values():
            raise popart_exception(f"Could not find a varupdate op for tensor {id}")
    return [op for op in found if origins[op] in weights]


def _origin(graph: OpGraph, id: str) -> str:
    producer = graph.producer(id)
    return producer.input(0) if producer is not None and producer.type == "SliceInplace" else id


def _gradient(graph: OpGraph, op: Op) -> tuple[str, list[Op]]:
    """The gradient of an update, and what reads it there."""
    if op.type != "AdamVarUpdate":
        return op.input(1), [op]
    updater = graph.producer(op.input(1))
    assert updater is not None, "an updater computes what the variable changes by"
    moments = [graph.producer(updater.input(index)) for index in (1, 2)]
    readers = [one for one in moments if one is not None]
    return readers[0].input(1), readers


_READERS = frozenset(["SGD0VarUpdate", "SGD1VarUpdate", "AdamVarUpdate"])


class _Clip:
    """The operators of one group."""

    def __init__(self, graph: OpGraph, number: int, *, after_batches: bool) -> None:
        self._graph, self._number = graph, number
        self._context = Context.AFTER_BATCHES if after_batches else Context.NORMAL

    def run(self, maximum: float, read: Sequence[tuple[str, list[Op]]]) -> None:
        squares = [self._square(gradient, readers[0]) for gradient, readers in read]
        home = self._home(squares)
        norm = self._norm([self._copied(one, home) for one in squares])
        factor = self._factor(norm, maximum)
        for gradient, readers in read:
            self._scale(gradient, readers, factor)

    def _add(
        self, type_: str, inputs: Sequence[str], output: str, like: Op, **attributes: object
    ) -> Op:
        settings = replace(like.settings, name=type_, context=self._context)
        tensors = dict(enumerate(inputs))
        made = Op(type_, tensors, {0: output}, dict(attributes), settings, backward=True)
        made.optimizes = True
        return self._graph.add(made)

    def _square(self, gradient: str, reader: Op) -> Op:
        info = TensorInfo(self._graph.infos[gradient].data_type(), [])
        output = self._graph.fresh(f"{gradient}_clipping", info)
        return self._add("ReduceSumSquare", [gradient], output, reader, keepdims=0)

    def _home(self, squares: Sequence[Op]) -> int | None:
        """The IPU that has most of them."""
        places = Counter(op.settings.ipu for op in squares if op.settings.ipu is not None)
        return max(places, key=places.__getitem__, default=None)

    def _copied(self, op: Op, ipu: int | None) -> Op:
        """What an operator computes, on another IPU."""
        source = op.settings.ipu
        if source is None or ipu is None or source == ipu:
            return op
        settings: Settings = replace(op.settings, name="")
        output = self._graph.fresh(op.output, self._graph.infos[op.output])
        return self._graph.add(copy_to(ipu, op.output, output, settings))

    def _norm(self, squares: Sequence[Op]) -> Op:
        graph, like = self._graph, squares[0]
        info = graph.infos[like.output]
        inputs = [op.output for op in squares]
        total = self._add("Sum", inputs, graph.fresh(_SUM, info), like)
        norm = graph.add_tensor(f"{_NORM}{self._number}", info)
        return self._add("Sqrt", [total.output], norm, like)

    def _factor(self, norm: Op, maximum: float) -> Op:
        graph, info = self._graph, self._graph.infos[norm.output]
        bound = graph.constant(_BOUND, maximum, info)
        larger = self._add("Max", [norm.output, bound], graph.fresh(_BOUND, info), norm)
        return self._add("Div", [bound, larger.output], graph.fresh(_BOUND, info), norm)

    def _scale(self, gradient: str, readers: Sequence[Op], factor: Op) -> None:
        graph = self._graph
        near = self._copied(factor, readers[0].settings.ipu)
        output = graph.fresh(f"{gradient}_clipped", graph.infos[gradient])
        self._add("Mul", [gradient, near.output], output, readers[0])
        for op in readers:
            for index, id in list(op.inputs.items()):
                if id == gradient:
                    graph.connect(op, index, output)
