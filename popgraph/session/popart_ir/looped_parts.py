"""Batches that are computed in parts by loops, a part in each turn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from popgraph.builder.opset.enums import InitType
from popgraph.builder.opset.tensorinfo import TensorInfo
from popgraph.session.popart_ir.batch_parts import MEANS, ROWS, BatchParts, cannot_part, reduced_by
from popgraph.session.popart_ir.graph import Op, OpGraph, Settings, Value
from popgraph.session.popart_ir.main_loops import (
    CONDITION,
    FIRST_INPUT,
    NUMBER,
    TURNS,
    scoped,
)
from popgraph.session.popart_ir.part_shapes import part_shape
from popgraph.session.popart_ir.schedule import scheduled
from popgraph.support.shapes import prod

Shape = list[int]


@dataclass(frozen=True)
class _Turned:
    """An operator that computes a part of its batch in each turn of a loop."""

    op: Op
    cut: frozenset[str]
    """The operands of which a turn reads a part."""
    parts: dict[int, Shape]
    """The shapes of results in a turn."""
    summed: frozenset[int]
    """The results that turns add up."""


@dataclass
class LoopedParts(BatchParts):
    """
    Moves every operator that meets a batch into a loop, whose turns compute a part each.

    Operators that follow each other share a loop; in it, one reads the part that another one has
    made. What others read whole is written into one tensor, turn by turn, or added up.
    """

    bodies: list[OpGraph] = field(default_factory=list)
    """The graphs that loops call."""
    _turned: list[_Turned] = field(default_factory=list)
    _sizes: dict[tuple[str, object], Shape] = field(default_factory=dict)

    def _cut(self, op: Op, id: str) -> None:
        shape, count = self.graph.shape(id), self.settings.factor
        self._check_room(id)
        self._note(op, id, [shape[0] // count, *shape[1:]])

    def size(self, op: Op, id: str) -> Shape:
        """The shape of a part of a tensor that an operator reads."""
        return self._sizes[id, self._place(op)]

    def _note(self, op: Op, id: str, shape: Shape) -> None:
        self._parts[id, self._place(op)] = []
        self._sizes[id, self._place(op)] = shape

    def _write_parts(self, op: Op) -> None:
        graph, place = self.graph, self._place(op)
        for id in dict.fromkeys(op.inputs.values()):
            if (id, place) not in self._parts and self._cut_elsewhere(id):
                self._cut(op, id)
        shapes = {
            index: self._sizes.get((id, place), graph.shape(id)) for index, id in op.inputs.items()
        }
        cut = frozenset(id for id in op.inputs.values() if (id, place) in self._sizes)
        parts, summed = {}, set()
        for index, id in op.outputs.items():
            try:
                parts[index] = part_shape(graph, op, index, shapes)
            except ValueError as error:
                raise cannot_part(op) from error
            same = prod(parts[index]) == prod(graph.shape(id))
            if same and reduced_by(op) != "None":
                summed.add(index)
                self.batched.discard(id)
            else:
                self._note(op, id, parts[index])
        self._turned.append(_Turned(op, cut, parts, frozenset(summed)))
        self._gone[op] = None

    def _join(self) -> None:
        """Makes a loop of each row of operators that can share one."""
        numbers = {one.op: number for number, one in enumerate(self._turned)}
        for row in self._rows():
            name = f"loop_subgraph({numbers[row[0].op]})"
            self.bodies.append(_LoopOfParts(self, row, name).made())

    def run(self) -> None:
        super().run()
        self.graph.ops = scheduled(self.graph)

    def _rows(self) -> Iterator[list[_Turned]]:
        places = {op: number for number, op in enumerate(scheduled(self.graph))}
        row: _Row | None = None
        for one in self._turned:
            if row is None or not self._can_join(row, one):
                if row is not None:
                    yield row.turned
                row = _Row(self.graph, places, places[one.op])
            row.add(one)
        if row is not None:
            yield row.turned

    def _can_join(self, row: _Row, one: _Turned) -> bool:
        """Whether what an operator reads of a row are parts, which it reads of it at once."""
        told, other = one.op.settings, row.turned[0].op.settings
        if (told.context, told.phase, told.stage) != (other.context, other.phase, other.stage):
            return False
        if one.op.backward != row.turned[0].op.backward:
            return False
        for id in one.op.inputs.values():
            made = row.made.get(id)
            before = self.graph.producer(id)
            if made is not None:
                summed = {made.op.outputs[index] for index in made.summed}
                if id in summed or id not in one.cut:
                    return False
            elif before is not None and row.is_read_for(before):
                return False
        return True


@dataclass
class _Row:
    """Operators that share a loop, as far as they are found."""

    graph: OpGraph
    places: Mapping[Op, int]
    """In an order in which operators can run."""
    start: int
    """The place of the first of the row."""
    turned: list[_Turned] = field(default_factory=list)
    ops: set[Op] = field(default_factory=set)
    made: dict[str, _Turned] = field(default_factory=dict)
    """Which of them computes a tensor."""
    _apart: set[Op] = field(default_factory=set)
    """What is known to need nothing of the row; what joins it later is read later."""

    def add(self, one: _Turned) -> None:
        self.turned.append(one)
        self.ops.add(one.op)
        self.made.update(dict.fromkeys(one.op.outputs.values(), one))

    def is_read_for(self, op: Op) -> bool:
        """Whether an operator needs a result of the row."""
        seen, waiting = {op}, [op]
        while waiting:
            one = waiting.pop()
            if one in self.ops:
                return True
            for id in one.inputs.values():
                before = self.graph.producer(id)
                # a loop that was made before has no place, and needs nothing of the row
                late = before is not None and self.places.get(before, -1) >= self.start
                if before is not None and late and not (before in seen or before in self._apart):
                    seen.add(before)
                    waiting.append(before)
        self._apart |= seen
        return False


class _LoopOfParts:
    """Writes a row of operators as a loop and the graph of its turns."""

    def __init__(self, parts: LoopedParts, row: Sequence[_Turned], name: str) -> None:
        self._parts, self._row = parts, row
        self._outer, self._count = parts.graph, parts.settings.factor
        self._body = OpGraph(name)
        self._body.scope = name
        self._inside = {one.op for one in row}
        self._held: dict[str, str] = {}
        """The parts that a turn has of tensors."""
        self._read: dict[str, str] = {}
        """Tensors around the loop, and their names in it."""
        self._carried: list[tuple[str, str, str, str]] = []
        """What turns hand on: what the first gets, its names in a turn, and what comes out."""
        self._indices: dict[str, str] = {}
        """Which part a turn computes, by the tensor that says so of the first turn."""
        self._behind: list[Op] = []

    def made(self) -> OpGraph:
        """The graph of a turn; the loop stands in the other one."""
        for one in self._row:
            self._turn(one)
        self._close()
        return self._body

    # a turn

    def _turn(self, one: _Turned) -> None:
        op, body = one.op, self._body
        inputs = {
            index: self._part(op, id) if id in one.cut else self._whole(id)
            for index, id in op.inputs.items()
        }
        outputs = {
            index: self._tensor(id, self._info(id, one.parts[index]))
            for index, id in op.outputs.items()
        }
        scaled = MEANS.get(op.type) if reduced_by(op) == "Mean" else None
        inner = dict(outputs)
        if scaled is not None:
            inner[scaled] = body.fresh(outputs[scaled], body.infos[outputs[scaled]])
        clone = Op(op.type, inputs, inner, dict(op.attributes), op.settings, op.called)
        clone.backward = op.backward
        body.add(clone)
        if scaled is not None:
            self._add(op, "Scale", [inner[scaled]], outputs[scaled], {"scale": 1 / self._count})
        for index, id in op.outputs.items():
            self._held[id] = outputs[index]
            if index in one.summed:
                self._sum(op, id, outputs[index])
            elif self._is_read_outside(id):
                self._write(op, id, outputs[index])

    def _is_read_outside(self, id: str) -> bool:
        outer = self._outer
        return outer.is_protected(id) or not self._inside.issuperset(outer.consumers(id))

    def _part(self, op: Op, id: str) -> str:
        """The part of a tensor that a turn reads: one that it has made, or cuts out."""
        if id in self._held:
            return self._held[id]
        count, shape = self._count, self._outer.shape(id)
        part = self._parts.size(op, id)
        axis = _axis(part, shape)
        held, row = self._whole(id), self._body.fresh(self._whole(id), self._info(id, part))
        cut = row
        if part[axis] > 1:
            rows = [*part[:axis], count, *part[axis:]]
            held = self._reshaped(op, held, self._info(id, rows))
            cut = self._fresh(id, [*part[:axis], 1, *part[axis:]])
        attributes: dict[str, Value] = {**ROWS, "axes": [axis]}
        self._add(op, "DynamicSlice", [held, self._index(op)], cut, attributes, f"Slice_{id}")
        if part[axis] > 1:
            self._add(op, "Reshape", [cut], row, {}, f"Reshape_{cut}")
        self._held[id] = row
        return row

    def _write(self, op: Op, id: str, part: str) -> None:
        """Writes the part of a turn into the whole, which turns hand on."""
        count, whole, shape = self._count, self._outer.shape(id), self._body.shape(part)
        index = self._index(op)
        first = self._first(op, id, InitType.NoInit)
        axis = _axis(shape, whole)
        held, piece = first, part
        following = self._body.fresh(first, self._info(id, whole))
        updated = following
        if shape[axis] > 1:
            rows = [*shape[:axis], count, *shape[axis:]]
            row = [*shape[:axis], 1, *shape[axis:]]
            piece = self._reshaped(op, part, self._info(id, row))
            held = self._reshaped(op, first, self._info(id, rows))
            updated = self._fresh(id, rows)
        attributes: dict[str, Value] = {**ROWS, "axes": [axis]}
        name = f"Update_{first}"
        self._add(op, "DynamicUpdate", [held, index, piece], updated, attributes, name)
        if shape[axis] > 1:
            self._add(op, "Reshape", [updated], following, {}, f"Reshape_{updated}")
        self._hand_on(op, id, first, following, id)

    def _sum(self, op: Op, id: str, part: str) -> None:
        """Adds up what turns compute; of means the sum is divided behind the loop."""
        first = self._first(op, id, InitType.Zero)
        following = self._body.fresh(first, self._body.infos[first])
        self._add(op, "Add", [first, part], following, {})
        reduction, last = reduced_by(op), id
        if id == self._parts.loss:
            last = self._outer.fresh(id, self._outer.infos[id])
            self._finish(op, "IdentityLoss", last, id, {"reduction": reduction})
        if reduction == "Mean":
            total = self._outer.fresh(id, self._outer.infos[id])
            self._finish(op, "Scale", total, last, {"scale": 1 / self._count})
            last = total
        self._hand_on(op, id, first, following, last)

    def _finish(
        self, op: Op, type_: str, given: str, made: str, attributes: dict[str, Value]
    ) -> None:
        """An operator behind the loop."""
        settings = replace(op.settings, name="")
        found = Op(type_, {0: given}, {0: made}, attributes, settings, backward=op.backward)
        self._behind.append(found)

    # what goes round

    def _first(self, op: Op, id: str, filled: InitType) -> str:
        """A tensor to write to, which is made before the loop; its name in a turn."""
        outer, info = self._outer, self._outer.infos[id]
        name = f"ConcatInit___{id}"
        made = outer.fresh(name, info)
        settings = replace(op.settings, name=name)
        outer.add(Op("Init", {}, {0: made}, {"inittype": int(filled)}, settings), before=op)
        inner = self._tensor(made, info)
        self._read[made] = inner
        return inner

    def _hand_on(self, op: Op, id: str, first: str, following: str, last: str) -> None:
        made = next(outer for outer, inner in self._read.items() if inner == first)
        del self._read[made]
        self._carried.append((made, first, following, last))

    def _index(self, op: Op) -> str:
        """The number of the part, which every turn hands on as the next one's."""
        outer, body = self._outer, self._body
        zero = self._parts.index(op, 0)
        if zero not in self._indices:
            info = outer.infos[zero]
            inner = self._tensor(zero, info)
            one = body.constant(inner, 1.0, TensorInfo("UINT32", []))
            following = body.fresh(inner, info)
            self._indices[zero] = inner
            self._carried.append((zero, inner, following, outer.fresh(zero, info)))
            self._add(op, "Add", [inner, one], following, {})
        return self._indices[zero]

    def _close(self) -> None:
        outer, body, ops = self._outer, self._body, [one.op for one in self._row]
        number, condition = scoped(body, NUMBER), scoped(body, CONDITION)
        body.add_tensor(number, TensorInfo("INT32", []))
        body.add_tensor(condition, TensorInfo("BOOL", []))
        body.inputs = [
            number,
            condition,
            *(inner for _, inner, _, _ in self._carried),
            *self._read.values(),
        ]
        body.results = [following for _, _, following, _ in self._carried]
        operands = [*(first for first, _, _, _ in self._carried), *self._read]
        settings: Settings = replace(ops[0].settings, outline={})
        loop = Op(
            "Loop",
            dict(enumerate(operands, FIRST_INPUT)),
            {index: last for index, (_, _, _, last) in enumerate(self._carried)},
            {TURNS: self._count},
            settings,
            (body.name,),
            backward=ops[0].backward,
        )
        outer.add(loop)
        for op in ops:
            outer.order_alike(op, loop)
        for one in reversed(self._behind):
            outer.add(one)

    # tensors and operators

    def _whole(self, id: str) -> str:
        """A tensor around the loop, as a turn reads it."""
        if id not in self._read:
            kind, outer = self._outer.kind(id), self._outer
            self._read[id] = self._body.add_tensor(scoped(self._body, id), outer.infos[id], kind)
        return self._read[id]

    def _tensor(self, id: str, info: TensorInfo) -> str:
        return self._body.add_tensor(scoped(self._body, id), info)

    def _fresh(self, id: str, shape: Shape) -> str:
        return self._body.fresh(scoped(self._body, id), self._info(id, shape))

    def _info(self, id: str, shape: Shape) -> TensorInfo:
        return TensorInfo(self._outer.infos[id].data_type(), shape)

    def _reshaped(self, op: Op, id: str, info: TensorInfo) -> str:
        made = self._body.fresh(id, info)
        self._add(op, "Reshape", [id], made, {}, f"Reshape_{id}")
        return made

    def _add(
        self,
        op: Op,
        type_: str,
        inputs: list[str],
        output: str,
        attributes: dict[str, Value],
        name: str = "",
    ) -> None:
        settings: Settings = replace(op.settings, name=name)
        made = Op(type_, dict(enumerate(inputs)), {0: output}, attributes, settings)
        made.backward = op.backward
        self._body.add(made)


def _axis(part: Shape, whole: Shape) -> int:
    """The axis along which a part is shorter than the whole."""
    pairs = zip(whole, part, strict=True)
    return next((at for at, (one, other) in enumerate(pairs) if other < one), 0)
