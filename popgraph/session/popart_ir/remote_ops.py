"""Operators of memory off the chip and of shares, and which operators can work on shares."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from popgraph.builder.opset.enums import CollectiveOperator, TileSet
from popgraph.builder.popart.names import RESERVED_PREFIXES
from popgraph.session.popart_ir.graph import COLLECTIVES, Kind, Op, OpGraph, Value, words

LOAD, STORE = "RemoteLoadInplace", "RemoteStore"
GATHER, SCATTER = "ReplicatedAllGather", "ReplicatedReduceScatter"
REDUCE = frozenset(["ReplicatedAllReduce", "ReplicatedAllReduceInplace"])

MERGED = "MultiExchange"
"""What loads and stores several tensors at once."""
EXCHANGES = "popgraph.exchanges"
"""Its attribute that tells of each."""

ARGUMENT = RESERVED_PREFIXES["reservedRemoteArgPrefix"]
"""What the names of constants begin with that say which part of a buffer is meant."""

Indices = tuple[tuple[int, ...], tuple[int, ...]]
"""Inputs that are shares together, and the outputs that then are."""

_UNARY = words("Cast Scale Neg Sqrt Identity")
_BINARY = words("Add Mul Div Sub")
_RULES: dict[str, Indices] = {
    "ScaledAdd": ((0, 1), (0,)),
    "LambSquare": ((0,), ()),
    "ReduceSumSquare": ((0,), ()),
    "AccumulatorScale": ((0,), (0,)),
    "AdaDeltaUpdater": ((0, 1, 2), (0,)),
    GATHER: ((0,), ()),
    SCATTER: ((), (0,)),
    STORE: ((0,), ()),
    LOAD: ((0,), (0,)),
    **dict.fromkeys(REDUCE | _UNARY, ((0,), (0,))),
}
_OPTIONAL: dict[str, tuple[int, ...]] = {
    "AdamUpdater": (0, 1, 2),
    "RMSPropUpdater": (0, 1, 2),
}
"""What has some of its inputs only under some rules."""


def collective(
    group: Sequence[int], operator: CollectiveOperator | None = None
) -> dict[str, Value]:
    """
    Attributes of what replicas do together.

    A group is told by the number of replicas, how far apart its members are, and how many.
    """
    found: dict[str, Value] = {"__collectiveReplicaGrouping": list(group)}
    if operator is not None:
        found["__collectiveOperator"] = int(operator)
    return found


def share_indices(graph: OpGraph, op: Op) -> Indices | None:
    """Which tensors of an operator can be shares, if it can work on shares at all."""
    if op.type in _RULES:
        return _RULES[op.type]
    if op.type in _OPTIONAL:
        return tuple(one for one in _OPTIONAL[op.type] if one in op.inputs), (0,)
    if op.type in _BINARY:
        whole = whole_shape(graph, op.output)
        inputs = tuple(one for one in (0, 1) if whole_shape(graph, op.input(one)) == whole)
        return inputs, (0,) if inputs else ()
    return ((0, 1), (0,)) if op.changes == 0 and len(op.inputs) > 1 else None


def whole_shape(graph: OpGraph, id: str) -> list[int]:
    """The shape of all shares together, or of what is no share."""
    return graph.whole.get(id) or graph.shape(id)


def shared_size(elements: int, members: int) -> int:
    """How many elements each share of a tensor has."""
    return -(-elements // members)


def optimizes(op: Op) -> bool:
    """Whether an operator is part of an optimizer's rule."""
    if op.type in COLLECTIVES or op.type in (LOAD, STORE):
        return False
    return op.optimizes or op.changes is not None


def shown(op: Op) -> str:
    """An operator as messages name it."""
    inputs, outputs = (", ".join(ids.values()) for ids in (op.inputs, op.outputs))
    name = f"{op.settings.name} ({op.type})" if op.settings.name else op.type
    return f"Op({name}, inputs=[{inputs}], outputs=[{outputs}])"


def bare(id: str) -> str:
    """The name of a tensor without what PopART puts in front of names."""
    prefixes = sorted(RESERVED_PREFIXES.values(), key=len, reverse=True)
    while (found := next((one for one in prefixes if id.startswith(one)), None)) is not None:
        id = id.removeprefix(found)
    return id


@dataclass(frozen=True)
class _Share:
    share: str
    gathered: str
    reference: str


@dataclass
class ShareNames:
    """Which tensor is a share, and which has been gathered of which; what comes first holds."""

    _of_share: dict[str, _Share] = field(default_factory=dict)
    _of_gathered: dict[str, _Share] = field(default_factory=dict)

    def add(self, share: str, gathered: str, reference: str) -> None:
        one = _Share(share, gathered, bare(reference))
        self._of_share.setdefault(share, one)
        if gathered:
            self._of_gathered.setdefault(gathered, one)

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._of_share))

    def __contains__(self, id: str) -> bool:
        return id in self._of_share

    def share(self, id: str) -> str:
        return id if id in self._of_share else self._of_gathered[id].share

    def gathered(self, share: str) -> str:
        """Empty where nobody has gathered it."""
        return share if share in self._of_gathered else self._of_share[share].gathered

    def reference(self, share: str) -> str:
        return self._of_share[share].reference


@dataclass(frozen=True)
class Exchange:
    """One of several loads and stores: of a stream of the host, or of a buffer off the chip."""

    direction: str
    stream: str
    ipu: int | None
    tiles: TileSet
    argument: int | None
    """The input that tells the part of the buffer."""

    def shown(self, buffer: int) -> str:
        ipu = -1 if self.ipu is None else self.ipu
        return (
            f"(direction={self.direction}, remoteBufferId={buffer}, "
            f"hostStreamTensorId={self.stream}, vGraphId={ipu}, tiles={self.tiles.name})"
        )


def _arguments(op: Op) -> list[str]:
    """The constants that tell which parts of buffers an operator uses."""
    if op.type in (LOAD, STORE):
        return [op.input(1)]
    exchanges = op.attributes.get(EXCHANGES, ())
    assert isinstance(exchanges, tuple), "what is merged is told one by one"
    return [op.input(one.argument) for one in exchanges if one.argument is not None]


def number_buffers(graphs: Sequence[OpGraph]) -> None:
    """
    Numbers the buffers off the chip that operators use.

    What a called operator loads for several of its callers is in one buffer.
    """
    read: dict[tuple[str, str], set[str]] = {}
    by_name = {graph.name: graph for graph in graphs}
    for id, kind in graphs[0].kinds.items():
        if kind is Kind.CONSTANT and id.startswith(ARGUMENT):
            _trace(graphs[0], id, id, by_name, read)
    users = [
        (op, id, read.get((graph.name, id), set()))
        for graph in graphs
        for op in graph.ops
        for id in _arguments(op)
    ]
    groups: dict[str, set[str]] = {}
    for _, _, arguments in users:
        joined = set().union(*(groups.get(one, {one}) for one in arguments))
        groups |= dict.fromkeys(joined, joined)
    numbers: dict[str, int] = {}
    for argument in sorted(groups):
        if argument not in numbers:
            numbers |= dict.fromkeys(groups[argument], len(set(numbers.values())))
    buffers = {id: numbers[min(arguments)] for _, id, arguments in users if arguments}
    for op in (op for graph in graphs for op in graph.ops):
        if op.type in (LOAD, STORE):
            op.attributes["bufferid"] = buffers.get(op.input(1), -1)
        elif op.type == MERGED:
            _describe(op, buffers)


def _describe(op: Op, buffers: Mapping[str, int]) -> None:
    exchanges = op.attributes.get(EXCHANGES, ())
    assert isinstance(exchanges, tuple), "what is merged is told one by one"
    parts = [
        one.shown(-1 if one.argument is None else buffers.get(op.input(one.argument), -1))
        for one in exchanges
    ]
    op.attributes["exchangeDescriptors"] = ",".join(parts)


def _trace(
    graph: OpGraph,
    id: str,
    argument: str,
    graphs: dict[str, OpGraph],
    read: dict[tuple[str, str], set[str]],
) -> None:
    """Follows a constant into the graphs that operators call."""
    found = read.setdefault((graph.name, id), set())
    if argument in found:
        return
    found.add(argument)
    for op in graph.consumers(id):
        for name in op.called:
            for index, given in op.inputs.items():
                if given == id and index < len(graphs[name].inputs):
                    _trace(graphs[name], graphs[name].inputs[index], argument, graphs, read)
