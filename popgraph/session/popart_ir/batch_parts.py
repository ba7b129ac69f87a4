"""Batches that are computed in parts, one part after the other."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from popgraph.builder.opset.enums import BatchSerializationMethod
from popgraph.builder.opset.exceptions import popart_exception
from popgraph.builder.opset.tensorinfo import TensorInfo
from popgraph.session.popart_ir.graph import Kind, Op, OpGraph, Settings, Value, words
from popgraph.session.popart_ir.part_shapes import can_part, part_shape
from popgraph.session.popart_ir.schedule import scheduled
from popgraph.session.settings import BatchSerializationSettings
from popgraph.support.shapes import prod

_Place = tuple[int | None, int | None, int | None]
"""The IPU, phase and stage that a tensor is cut for, as far as these keep parts from going on."""

_LOSSES = words("IdentityLoss L1 Nll NlllWithSoftmaxGradDirect")
MEANS = {"IdentityLossGrad": 0, "L1Grad": 0, "NllGrad": 0, "NlllWithSoftmaxGradDirect": 1}
"""Gradients of means, and which of their results shrink with the count of what is averaged."""
_NO_BATCH = words("Gather Transpose")
"""Results of which PopART does not go on to look for a batch, unless they are cut."""
_SEEDS = "randomSeed"


@dataclass
class BatchParts:
    """
    Writes every operator that meets a batch as many operators, each of which computes a part.

    A batch that comes in is cut by dynamic slices, or by plain ones where parts are unrolled
    statically, and results that somebody wants whole are put together again.
    """

    graph: OpGraph
    settings: BatchSerializationSettings
    loss: str | None
    batched: set[str] = field(default_factory=set)
    _parts: dict[tuple[str, _Place], list[str]] = field(default_factory=dict)
    _gone: dict[Op, None] = field(default_factory=dict)

    def run(self) -> None:
        graph = self.graph
        self.batched |= {
            id
            for id, kind in graph.kinds.items()
            if kind is Kind.STREAM and graph.shape(id) and not id.startswith(_SEEDS)
        }
        for op in graph.ops:
            if op.type == "HostLoad":
                self.batched.update(op.outputs.values())
        for op in scheduled(graph):
            if self.batched & set(op.inputs.values()) and op.type not in _NO_BATCH:
                self.batched.update(id for id in op.outputs.values() if graph.shape(id))
            if can_part(op) and not op.writes and self._meets_batch(op):
                self._write_parts(op)
        self._join()
        for op in self._gone:
            graph.remove(op)

    def _place(self, op: Op) -> _Place:
        asked, told = self.settings, op.settings
        return (
            told.ipu if asked.concatOnVirtualGraphChange else None,
            told.phase if asked.concatOnExecutionPhaseChange else None,
            told.stage if asked.concatOnPipelineStageChange else None,
        )

    def _meets_batch(self, op: Op) -> bool:
        """Whether an operand is cut, which is what happens to those that are batches."""
        graph, place, found = self.graph, self._place(op), False
        for id in dict.fromkeys(op.inputs.values()):
            before = graph.producer(id)
            made = before is not None and (id, self._place(before)) in self._parts
            here = (id, place) in self._parts
            if id in self.batched and not here:
                found |= prod(graph.shape(id)) >= self.settings.factor
                self._cut(op, id)
            else:
                found |= made or here
        return found

    # cutting and joining

    def _check_room(self, id: str) -> None:
        size, count = self.graph.shape(id)[0], self.settings.factor
        if size < count:
            raise popart_exception(
                f"Batch axis: {size} is smaller than the batch serialization factor: {count} for "
                f"tensor {id}",
                "SessionOptions.batchSerializationSettings",
            )

    def _cut(self, op: Op, id: str) -> None:
        graph, count = self.graph, self.settings.factor
        self._check_room(id)
        shape = graph.shape(id)
        info = self._info(id, [shape[0] // count, *shape[1:]])
        names = [graph.part(id, number, info) for number in range(count)]
        self._parts[id, self._place(op)] = names
        size = shape[0] // count
        if self.settings.method is BatchSerializationMethod.UnrollStatic:
            for number, name in enumerate(names):
                bounds: dict[str, Value] = {
                    "starts": [number * size],
                    "ends": [(number + 1) * size],
                    "axes": [0],
                }
                self._add(op, "Slice", [id], name, bounds, number, f"Slice_{name}")
            return
        whole = id
        if size > 1:
            whole = graph.fresh(id, self._info(id, [count, size, *shape[1:]]))
            self._add(op, "Reshape", [id], whole, {}, None, f"Reshape_{id}")
        for number, name in enumerate(names):
            row = name
            if size > 1:
                row = graph.fresh(name, self._info(id, [1, size, *shape[1:]]))
            inputs = [whole, self.index(op, number)]
            self._add(op, "DynamicSlice", inputs, row, dict(ROWS), number, f"Slice_{id}")
            if size > 1:
                self._add(op, "Reshape", [row], name, {}, number, f"Reshape_{row}")

    def _join(self) -> None:
        """Puts together what anchors, or operators that know no parts, read whole."""
        graph = self.graph
        for (id, place), names in sorted(self._parts.items(), key=lambda item: item[0][0]):
            before = graph.producer(id)
            if before is None or before not in self._gone or self._place(before) != place:
                continue
            readers = [user for user in graph.consumers(id) if user not in self._gone]
            if readers or graph.is_protected(id):
                self._put_together(before, id, names)

    def _put_together(self, op: Op, id: str, names: list[str]) -> None:
        graph, count = self.graph, len(names)
        whole, part = graph.shape(id), graph.shape(names[0])
        pairs = zip(whole, part, strict=True)
        axis = next((at for at, (one, other) in enumerate(pairs) if other < one), 0)
        name = f"Concat_{id}"
        if self.settings.method is BatchSerializationMethod.UnrollStatic:
            self._add(op, "Concat", names, id, {"axis": axis}, None, name)
            return
        size = part[axis]
        rows = [*part[:axis], count, *([size] if size > 1 else []), *part[axis + 1 :]]
        row = [*part[:axis], 1, size, *part[axis + 1 :]]
        held = graph.fresh(f"ConcatInit___{id}", self._info(id, rows))
        self._add(op, "Init", [], held, {"inittype": 0}, None, f"ConcatInit___{id}")
        attributes: dict[str, Value] = {**ROWS, "axes": [axis]}
        for number, one in enumerate(names):
            piece = one
            if size > 1:
                piece = graph.fresh(one, self._info(id, row))
                self._add(op, "Reshape", [one], piece, {}, number, f"Reshape_{one}")
            last = number == count - 1 and size == 1
            after = id if last else graph.fresh(id, self._info(id, rows))
            inputs = [held, self.index(op, number), piece]
            self._add(op, "DynamicUpdate", inputs, after, dict(attributes), number, name)
            held = after
        if size > 1:
            self._add(op, "Reshape", [held], id, {}, None, f"Reshape_{held}")

    # operators

    def _write_parts(self, op: Op) -> None:
        graph, place, count = self.graph, self._place(op), self.settings.factor
        for id in dict.fromkeys(op.inputs.values()):
            if (id, place) not in self._parts and self._cut_elsewhere(id):
                self._cut(op, id)
        results: dict[int, list[str]] = {index: [] for index in op.outputs}
        for number in range(count):
            inputs = {
                index: self._parts[id, place][number] if (id, place) in self._parts else id
                for index, id in op.inputs.items()
            }
            shapes = {index: graph.shape(id) for index, id in inputs.items()}
            outputs = {}
            for index, id in op.outputs.items():
                try:
                    info = self._info(id, part_shape(graph, op, index, shapes))
                except ValueError as error:
                    raise cannot_part(op) from error
                outputs[index] = graph.part(id, number, info)
                results[index].append(outputs[index])
            scaled = MEANS.get(op.type) if reduced_by(op) == "Mean" else None
            inner = dict(outputs)
            if scaled is not None:
                name = outputs[scaled]
                inner[scaled] = graph.fresh(name, graph.infos[name])
            settings = replace(op.settings, part=number)
            made = Op(op.type, inputs, inner, dict(op.attributes), settings, op.called)
            made.backward = op.backward
            graph.add(made, before=op)
            if scaled is not None:
                given, name = inner[scaled], outputs[scaled]
                self._add(op, "Scale", [given], name, {"scale": 1 / count}, number, "")
        self._gone[op] = None
        for index, names in results.items():
            self._record(op, index, names)

    def _cut_elsewhere(self, id: str) -> bool:
        before = self.graph.producer(id)
        return before is not None and (id, self._place(before)) in self._parts

    def _record(self, op: Op, index: int, names: list[str]) -> None:
        """Parts of a result, or what is summed up of them where each has the result's size."""
        graph, id = self.graph, op.outputs[index]
        reduction = reduced_by(op)
        same = prod(graph.shape(names[0])) == prod(graph.shape(id))
        if not same or reduction == "None":
            self._parts[id, self._place(op)] = names
            return
        self.batched.discard(id)
        type_ = "Mean" if reduction == "Mean" else "Sum"
        if id != self.loss:
            self._add(op, type_, names, id, {}, None, op.settings.name)
            return
        total = graph.fresh(id, graph.infos[id])
        self._add(op, type_, names, total, {}, None, op.settings.name)
        self._add(op, "IdentityLoss", [total], id, {"reduction": reduction}, None, "")

    def _add(
        self,
        op: Op,
        type_: str,
        inputs: list[str],
        output: str,
        attributes: Mapping[str, Value],
        number: int | None,
        name: str,
    ) -> None:
        settings: Settings = replace(op.settings, part=number, name=name)
        made = Op(type_, dict(enumerate(inputs)), {0: output}, dict(attributes), settings)
        made.backward = op.backward
        self.graph.add(made, before=op)

    def index(self, op: Op, number: int) -> str:
        """A tensor that says which part is meant."""
        told = op.settings
        ipu = "" if told.ipu is None else f"_{told.ipu}"
        id = f"Index___{number}_{told.tiles.name}{ipu}"
        return self.graph.add_tensor(id, TensorInfo("UINT32", [1]), Kind.CONSTANT)

    def _info(self, id: str, shape: Collection[int]) -> TensorInfo:
        return TensorInfo(self.graph.infos[id].data_type(), list(shape))


ROWS: Mapping[str, Value] = {"axes": [0], "sizes": [1], "noOverlap": 1}
"""Of dynamic slices and updates: a part is a row."""


def reduced_by(op: Op) -> str:
    """How the parts of a result make the whole, if not by standing beside each other."""
    losses = op.type in _LOSSES or op.type in MEANS
    return str(op.attributes.get("reduction", "Mean")) if losses else "Sum"


def cannot_part(op: Op) -> popart_exception:
    inputs = ", ".join(op.inputs.values())
    return popart_exception(
        f"Batch serialisation failed while processing op {op.type}. The inputs to this op are: "
        f"{inputs}.",
        "SessionOptions.batchSerializationSettings",
    )
