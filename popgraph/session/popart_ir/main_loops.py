"""Main loops: the batches of a step and their micro-batches, as operators that call graphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from popgraph.builder.opset.enums import AnchorReturnTypeId
from popgraph.builder.opset.tensorinfo import TensorInfo
from popgraph.session.popart_ir.graph import Context, Op, OpGraph, Settings
from popgraph.session.popart_ir.schedule import scheduled

_STEP, _ACCUMULATION = "stepGraph", "accumulationGraph"
NUMBER, CONDITION = "Iterator___", "LoopCond___"
_IN_STEPS = (Context.NORMAL, Context.AFTER_BATCHES)
"""What loops run; weights come from the host, and go back, around them."""
TURNS = "tripCountValue"
FIRST_INPUT = 2
"""The first input of a loop behind the count and the condition, which these loops have not."""
_AT_ONCE = {AnchorReturnTypeId.Final: "anchorFinal___", AnchorReturnTypeId.Sum: "anchorSum___"}
"""Anchors that come back once in a step, and the names of what a loop hands on of them."""


@dataclass
class Loop:
    """A loop and the graph that it runs."""

    op: Op
    outer: OpGraph
    body: OpGraph
    inside: dict[str, str]
    """The names that tensors of the outer graph have in it."""
    count: int = 0
    """How many of what it takes and gives first go round, each turn's for the next."""

    @property
    def carried(self) -> list[str]:
        """What turns take of those before, in the order in which they give it."""
        return self.body.inputs[FIRST_INPUT:][: self.count]

    @property
    def operands(self) -> list[str]:
        return [id for _, id in sorted(self.op.inputs.items())]

    def add_carried(self, first: str, inner: str, following: str) -> None:
        """Adds a tensor that each turn hands on to the next; `first` is what the first one gets."""
        _insert(self.op.inputs, FIRST_INPUT, first)
        self.outer.connect(self.op, FIRST_INPUT, first)
        self.body.inputs.insert(FIRST_INPUT, inner)
        self.body.results.insert(0, following)
        last = self.outer.fresh(first, self.outer.infos[first])
        _insert(self.op.outputs, 0, last)
        self.outer.rename_output(self.op, 0, last)
        self.count += 1

    def add_implicit(self, id: str, inner: str) -> str:
        """Adds a tensor that the body reads and changes as it is."""
        index = max(self.op.inputs, default=FIRST_INPUT - 1) + 1
        self.outer.connect(self.op, index, id)
        self.body.inputs.append(self.body.add_tensor(inner, self.outer.infos[id]))
        return inner


@dataclass
class MainLoops:
    """
    Writes what a step repeats as graphs that loops call, and the anchors that they return.

    What a batch does is in `stepGraph`, and in it what each of its micro-batches does in
    `accumulationGraph`; a loop of one turn is none.
    """

    main: OpGraph
    batches: int
    accumulation: int
    homes: dict[str, tuple[OpGraph, str]] = field(default_factory=dict)
    """Where the anchors are to be stored from."""
    loops: list[Loop] = field(default_factory=list)
    """The outer one first."""

    def run(self, anchors: Mapping[str, AnchorReturnTypeId]) -> list[OpGraph]:
        """The graphs that loops call, the outer one first."""
        self.homes = {id: (self.main, id) for id in anchors if id in self.main.infos}
        if self.batches > 1:
            ops = [op for op in scheduled(self.main) if op.settings.context in _IN_STEPS]
            self._enter("step", _STEP, self.batches, ops)
        if self.accumulation > 1:
            graph = self.loops[-1].body if self.loops else self.main
            ops = [op for op in scheduled(graph) if op.settings.context is Context.NORMAL]
            self._enter("accumulation", _ACCUMULATION, self.accumulation, ops)
        graphs = [self.main, *(loop.body for loop in self.loops)]
        for op in (op for graph in graphs for op in graph.ops):
            if op.settings.after_batches:
                op.settings = replace(op.settings, context=Context.NORMAL)
        for id, returned in anchors.items():
            if id in self.homes and returned in _AT_ONCE and self.loops:
                self._return_once(id, returned)
        return graphs[1:]

    def _enter(self, name: str, graph: str, turns: int, ops: Sequence[Op]) -> None:
        outer = self.loops[-1].body if self.loops else self.main
        loop = _moved(outer, graph, ops)
        loop.op.settings = replace(loop.op.settings, name=f"{name}Loop")
        loop.op.attributes[TURNS] = turns
        self.loops.append(loop)
        for id, (home, held) in list(self.homes.items()):
            if home is outer and held in loop.inside:
                self.homes[id] = loop.body, loop.inside[held]
        for _, (home, held) in self.homes.items():
            home.kept.add(held)

    def _return_once(self, id: str, returned: AnchorReturnTypeId) -> None:
        """Has loops hand on the last value of an anchor, or the sum of its values."""
        inner, home = self.loops[-1].body, self.homes[id]
        if home[0] is not inner:
            return
        info, name = inner.infos[home[1]], _AT_ONCE[returned] + id
        self.main.add_tensor(name, info)
        self.main.add(Op("Init", {}, {0: name}, settings=Settings(name="Init")), _first(self.main))
        for loop in self.loops:
            _insert(loop.op.inputs, FIRST_INPUT, scoped(loop.outer, name))
            loop.outer.connect(loop.op, FIRST_INPUT, scoped(loop.outer, name))
            held = loop.body.add_tensor(scoped(loop.body, name), info)
            loop.body.inputs.insert(FIRST_INPUT, held)
        value = home[1]
        if returned is AnchorReturnTypeId.Sum:
            total = inner.add_tensor(scoped(inner, f"{name}_out"), info)
            inputs = {0: scoped(inner, name), 1: value}
            inner.add(Op("Add", inputs, {0: total}, settings=Settings(name="Add")))
            value = total
        for loop in reversed(self.loops):
            loop.body.results.insert(0, value)
            value = loop.outer.add_tensor(scoped(loop.outer, f"{name}_out"), info)
            _insert(loop.op.outputs, 0, value)
            loop.outer.rename_output(loop.op, 0, value)
            loop.count += 1
        self.homes[id] = self.main, value


def _moved(outer: OpGraph, name: str, ops: Sequence[Op]) -> Loop:
    """A loop whose body is some of the operators of a graph."""
    moved = set(ops)
    results = [
        id for op in ops for id in op.outputs.values() if not moved.issuperset(outer.consumers(id))
    ]
    made = {id for op in ops for id in op.outputs.values()}
    results.sort(key=lambda id: _changed(outer, id) in made)
    carried = {_changed(outer, id): id for id in results}
    read = [id for op in ops for _, id in sorted(op.inputs.items()) if id not in made]
    rounds = [id for id in carried if id not in made]
    inputs = list(dict.fromkeys([*rounds, *read]))
    body = OpGraph(name)
    body.scope = name
    inside = {}
    for id in dict.fromkeys([*inputs, *made]):
        inside[id] = body.add_tensor(
            scoped(body, id.removeprefix(scoped(outer, ""))), outer.infos[id], outer.kind(id)
        )
        if id in outer.constants:
            body.constants[inside[id]] = outer.constants[id]
    number, condition = scoped(body, NUMBER), scoped(body, CONDITION)
    body.add_tensor(number, TensorInfo("INT32", []))
    body.add_tensor(condition, TensorInfo("BOOL", []))
    body.inputs = [number, condition, *(inside[id] for id in inputs)]
    body.results = [inside[id] for id in results]
    left = [op for op in outer.ops if op not in moved]
    first = next((op for op in left if not set(results).isdisjoint(op.inputs.values())), None)
    for op in ops:
        outer.remove(op)
        op.inputs = {index: inside[id] for index, id in op.inputs.items()}
        op.outputs = {index: inside[id] for index, id in op.outputs.items()}
        body.add(op)
    ipus = [op.settings.ipu for op in ops if op.settings.ipu is not None]
    loop = Op(
        "Loop",
        dict(enumerate(inputs, FIRST_INPUT)),
        dict(enumerate(results)),
        settings=Settings(ipu=min(ipus, default=None)),
        called=(name,),
        writes=True,
    )
    outer.add(loop, before=first)
    _order(outer, body, loop)
    return Loop(loop, outer, body, inside, len(rounds))


def _order(outer: OpGraph, body: OpGraph, loop: Op) -> None:
    """What had to wait for others waits in the body; of those in both graphs the loop does."""
    inner, orders = set(body.ops), outer.later
    outer.later = {}
    for before, waiting in orders.items():
        for op in waiting:
            if before in inner and op in inner:
                body.run_after(op, before)
            else:
                ends = [loop if one in inner else one for one in (op, before)]
                outer.run_after(*ends)


def _changed(graph: OpGraph, id: str) -> str:
    """The variable whose memory a tensor has, or the tensor itself."""
    producer = graph.producer(id)
    while producer is not None and producer.changes == 0:
        id = producer.input(0)
        producer = graph.producer(id)
    return id


def scoped(graph: OpGraph, id: str) -> str:
    return f"{graph.scope}/{id}" if graph.scope else id


def _first(graph: OpGraph) -> Op | None:
    return graph.ops[0] if graph.ops else None


def _insert(tensors: dict[int, str], index: int, id: str) -> None:
    """Puts a tensor in front of those that have this index and higher ones."""
    for place in sorted((one for one in tensors if one >= index), reverse=True):
        tensors[place + 1] = tensors.pop(place)
    tensors[index] = id
