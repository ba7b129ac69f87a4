"""Sequences of operators that occur more than once, as graphs that are called."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace

from popgraph.builder.opset.enums import RecomputeType
from popgraph.session.popart_ir.graph import Context, Kind, Op, OpGraph, Settings, words
from popgraph.session.popart_ir.layers import place_of
from popgraph.session.popart_ir.main_loops import scoped
from popgraph.session.popart_ir.placement import COPY
from popgraph.session.popart_ir.recurrent import POPART
from popgraph.session.popart_ir.updates import Gathering

_COSTLY = words(
    """
    MatMul Conv MultiConv ConvWeightsGrad ConvDataGrad BatchNormalization
    BatchNormalizationGrad GroupNormalization GroupNormalizationGrad InstanceNormalization
    InstanceNormalizationGrad RNN RNNGrad LSTM LSTMGrad GRUGrad LRN LRNGrad Histogram
    AdamUpdater RMSPropUpdater AdaDeltaUpdater LambSquare
    ReplicatedAllReduce ReplicatedAllReduceInplace ReplicatedReduceScatter ReplicatedAllGather
    RemoteLoadInplace RemoteStore HostLoad HostStore MultiExchange
    DynamicSlice DynamicUpdate DynamicUpdateInplace DynamicAdd DynamicAddInplace DynamicZero
    """
)
"""Operators that are worth a graph of their own."""

_COST, _LITTLE = 1000.0, 0.1

_NEVER = words("GetRandomSeed If Loop GRU Stash Restore RestoreInplace")

_ATTEMPTS = 64
"""How many lengths below the longest are tried whose operators match but not their tensors."""


@dataclass(frozen=True)
class _Match:
    """A sequence that occurs at several places."""

    length: int
    starts: tuple[int, ...]


class Outliner:
    """
    Replaces repeated sequences by calls, the longest first, and in what is called, too.

    Copies between IPUs stay where they are, unless `copies`; `others` is how many graphs have
    been made of operators before.
    """

    def __init__(self, threshold: float, *, copies: bool, others: int = 0) -> None:
        self._threshold, self._copies, self._others = threshold, copies, others
        self.graphs: dict[str, OpGraph] = {}

    def run(self, graphs: Sequence[OpGraph]) -> None:
        """Outlines graphs together, whose operators are in an order in which they can run."""
        while True:
            row = _Row([*graphs, *self.graphs.values()], copies=self._copies)
            match = self._best(row)
            if match is None:
                return
            self._replace(row, match)

    # finding

    def _best(self, row: _Row) -> _Match | None:
        length = _longest(row.ids)
        for tried in range(length, max(0, length - _ATTEMPTS), -1):
            found = self._match(row, tried)
            if found is not None:
                return found
        return None

    def _match(self, row: _Row, length: int) -> _Match | None:
        """The most frequent sequence of a length that is worth it and has one form everywhere."""
        best: _Match | None = None
        for starts in _places(row.ids, length):
            part = row.part(starts[0], length)
            if _is_call(part) or _worth(part) < self._threshold:
                continue
            forms: dict[Hashable, list[int]] = {}
            for start in starts:
                forms.setdefault(_form(row.part(start, length)), []).append(start)
            for same in forms.values():
                if len(same) > 1 and (best is None or len(same) > len(best.starts)):
                    best = _Match(length, tuple(same))
        return best

    # replacing

    def _replace(self, row: _Row, match: _Match) -> None:
        places = [(row.graph(start), row.part(start, match.length)) for start in match.starts]
        kept = sorted({one for graph, ops in places for one in _results(graph, ops)})
        name = f"call_subgraph({self._others + len(self.graphs)})"
        first, sample = places[0]
        self.graphs[name] = called_graph(first, sample, name, kept)
        for graph, ops in places:
            outputs = {index: ops[at].outputs[slot] for index, (at, slot) in enumerate(kept)}
            call = Op(
                "Call",
                dict(enumerate(inputs_of(ops))),
                outputs,
                settings=_called_with(ops[0].settings),
                called=(name,),
                writes=any(op.writes for op in ops),
                backward=ops[0].backward,
            )
            graph.add(call, before=ops[0])
            for op in ops:
                graph.forget(op)


class _Row:
    """
    The operators of several graphs in a row, and a number for each kind of operator.

    Graphs have a boundary between them, and so have operators of different parts of a step, and
    those that are computed again and others.
    """

    def __init__(self, graphs: Sequence[OpGraph], *, copies: bool) -> None:
        kinds: dict[Hashable, int] = {}
        self._entries: list[tuple[OpGraph, Op | None]] = []
        self.ids: list[int] = []
        for graph in graphs:
            before: Op | None = None
            for op in graph.ops:
                if before is not None and _section(op) != _section(before):
                    self._bound(graph)
                self._entries.append((graph, op))
                kind = op.number if op.type == COPY and not copies else _kind(graph, op)
                self.ids.append(kinds.setdefault(kind, len(kinds)))
                before = op
            self._bound(graph)

    def _bound(self, graph: OpGraph) -> None:
        self._entries.append((graph, None))
        self.ids.append(-len(self.ids) - 1)

    def graph(self, start: int) -> OpGraph:
        return self._entries[start][0]

    def part(self, start: int, length: int) -> list[Op]:
        found = self._entries[start : start + length]
        return [op for _, op in found if op is not None]


def _section(op: Op) -> Hashable:
    return op.settings.context, op.settings.recompute is RecomputeType.Recompute


def _longest(ids: list[int]) -> int:
    """The length of the longest sequence of numbers that occurs twice."""
    low, high = 0, len(ids) // 2
    while low < high:
        middle = (low + high + 1) // 2
        if any(_places(ids, middle)):
            low = middle
        else:
            high = middle - 1
    return low


def _worth(ops: Sequence[Op]) -> float:
    return sum(_COST if op.type in _COSTLY or _averages(op) else _LITTLE for op in ops)


def _averages(op: Op) -> bool:
    """Whether an operator makes averages out of what it brings into a variable."""
    known = (Gathering.MOVING_AVERAGE, Gathering.MOVING_AVERAGE_SQUARE, Gathering.INFINITY)
    gathers = op.type in ("Accumulate", "RescaleAccumulate")
    return gathers and op.attributes.get("type") in known


def _is_call(ops: Sequence[Op]) -> bool:
    """A call alone is as short as anything that could take its place."""
    return [op.type for op in ops] == ["Call"]


def _kind(graph: OpGraph, op: Op) -> Hashable:
    """What operators that may be outlined together have in common."""
    return op.number if not graph.kept.isdisjoint(op.outputs.values()) else equivalent(graph, op)


def equivalent(graph: OpGraph, op: Op) -> Hashable:
    """What operators have in common that compute the same of tensors alike."""
    if op.type in _NEVER or (op.type == "LSTM" and POPART not in op.attributes):
        return op.number
    if op.type == "Init" and graph.kind(op.output) is Kind.VARIABLE:
        return op.number
    infos = [
        (slot, index, str(graph.infos[id]))
        for slot, tensors in enumerate((op.inputs, op.outputs))
        for index, id in tensors.items()
    ]
    settings = replace(op.settings, name="")
    attributes = sorted((name, str(value)) for name, value in op.attributes.items())
    outline = sorted(settings.outline.items())
    return str(
        (
            op.type,
            infos,
            attributes,
            op.called,
            place_of(op.settings),
            settings.phase,
            settings.tiles,
            outline,
            settings.recompute,
            settings.excluded,
        )
    )


def _called_with(told: Settings) -> Settings:
    """A call is where its operators were."""
    again = told.recompute
    recompute = again if again is RecomputeType.Recompute else RecomputeType.Undefined
    placed = Settings(ipu=told.ipu, stage=told.stage, phase=told.phase, tiles=told.tiles)
    return replace(placed, context=told.context, recompute=recompute)


def _places(ids: list[int], length: int) -> Iterator[list[int]]:
    """Where each sequence of a length stands that occurs twice or more, without overlaps."""
    if length < 1:
        return
    found: dict[int, list[int]] = {}
    for start, sum_ in enumerate(_sums(ids, length)):
        places = found.setdefault(sum_, [])
        if not places or places[-1] + length <= start:
            places.append(start)
    for places in found.values():
        if len(places) > 1:
            yield from _alike(ids, length, places)


def _sums(ids: list[int], length: int) -> Iterator[int]:
    """A check sum of each sequence of a length, each made of the one before."""
    leaving = pow(_BASE, length, _PRIME)
    sum_ = 0
    for place, id in enumerate(ids):
        sum_ = (sum_ * _BASE + id) % _PRIME
        if place >= length:
            sum_ = (sum_ - ids[place - length] * leaving) % _PRIME
        if place >= length - 1:
            yield sum_


_BASE, _PRIME = 1_000_003, (1 << 61) - 1


def _alike(ids: list[int], length: int, places: list[int]) -> Iterator[list[int]]:
    """The places at which sequences of one check sum are the same."""
    while len(places) > 1:
        first = ids[places[0] : places[0] + length]
        same = [start for start in places if ids[start : start + length] == first]
        if len(same) > 1:
            yield same
        places = [start for start in places if start not in same]


def inputs_of(ops: Sequence[Op]) -> list[str]:
    """What a sequence reads of others, in the order in which it does."""
    inside = {id for op in ops for id in op.outputs.values()}
    read = [id for op in ops for id in op.inputs.values() if id not in inside]
    return list(dict.fromkeys(read))


def _form(ops: Sequence[Op]) -> Hashable:
    """Which operand of a sequence comes from where."""
    made = {id: (at, slot) for at, op in enumerate(ops) for slot, id in op.outputs.items()}
    outer = {id: number for number, id in enumerate(inputs_of(ops))}
    return tuple(made.get(id, outer.get(id)) for op in ops for id in op.inputs.values())


def _results(graph: OpGraph, ops: Sequence[Op]) -> list[tuple[int, int]]:
    """Which outputs of a sequence others read, or nobody because they update variables."""
    inside = set(ops)
    found = []
    for at, op in enumerate(ops):
        for slot, id in op.outputs.items():
            if op.writes or any(user not in inside for user in graph.consumers(id)):
                found.append((at, slot))
    return found


def called_graph(
    graph: OpGraph, ops: Sequence[Op], name: str, kept: Sequence[tuple[int, int]]
) -> OpGraph:
    """A graph of copies of operators, which gives some of their outputs."""
    body = OpGraph(name)
    body.scope = name

    def inner(id: str) -> str:
        return scoped(body, id.removeprefix(scoped(graph, "")))

    for op in ops:
        for id in (*op.inputs.values(), *op.outputs.values()):
            body.add_tensor(inner(id), graph.infos[id])
        body.add(
            Op(
                op.type,
                {index: inner(id) for index, id in op.inputs.items()},
                {index: inner(id) for index, id in op.outputs.items()},
                dict(op.attributes),
                replace(op.settings, context=Context.NORMAL),
                op.called,
                op.writes,
                op.backward,
            )
        )
    body.inputs = [inner(id) for id in inputs_of(ops)]
    body.results = [inner(ops[at].outputs[slot]) for at, slot in kept]
    return body
