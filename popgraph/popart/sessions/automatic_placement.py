"""Automatic virtual graphs: partitions the nodes of a model over IPUs by cost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from popgraph.dialects.onnx import Initializer, OnnxOp
from popgraph.popart.api.options import SessionOptions
from popgraph.popart.api.tensorinfo import TensorInfo
from popgraph.popart.exceptions import popart_exception
from popgraph.popart.model.model import SessionModel


@dataclass(frozen=True)
class IpuShares:
    """The number of IPUs, the target split, and the terms of the cost."""

    ipus: int
    ratios: Sequence[float] = ()
    """Target fraction of the cost per IPU; empty for an equal split."""
    trains: bool = False
    accumulates: bool = False
    """Whether each weight also has a gradient accumulator."""

    @classmethod
    def of(cls, options: SessionOptions, ipus: int, *, trains: bool) -> IpuShares:
        ratios = tuple(options.virtualGraphSplitRatios)
        return cls(ipus, ratios, trains, options.enableGradientAccumulation)

    def check(self) -> None:
        """Refuses ratios that do not sum to 1."""
        if self.ratios and len(self.ratios) != self.ipus:
            raise popart_exception("The size of virtualGraphSplitRatios must be equal to num_ipus.")
        if any(not 0 < ratio < 1 for ratio in self.ratios):
            raise popart_exception("virtualGraphSplitRatios[i] must be in the rage (0, 1).")
        whole = sum(self.ratios)
        if self.ratios and abs(whole - 1) > 1e-6:
            raise popart_exception(
                f"Sum of virtualGraphSplitRatios[i] must be equal to 1.0, but found {whole:g}."
            )

    def ends(self) -> Iterator[float]:
        """Cumulative target fractions after each IPU."""
        for count in range(1, self.ipus + 1):
            yield sum(self.ratios[:count]) if self.ratios else count / self.ipus

    def cost(self, node: PlacedNode, infos: Mapping[str, TensorInfo], held: Collection[str]) -> int:
        """Bytes of a node's weights and constants, plus the activations that its gradient reads."""
        type_ = node.op.op_type
        inputs = node.inputs[:1] if type_ in _SETTINGS else node.inputs
        weights = {id for id in inputs if id in held}
        total = sum(_bytes(infos, id) for id in weights) * (2 if self.accumulates else 1)
        if not self.trains:
            return total
        read, results = _READ.get(type_, (range(len(inputs)), ()))
        given = {inputs[at] for at in read if at < len(inputs)} - weights
        kept = [node.outputs[at] for at in results if at < len(node.outputs)]
        return total + sum(_bytes(infos, id) for id in (*given, *kept))


_SETTINGS = frozenset(
    {
        *("Clip", "Expand", "Pad", "ReduceMean", "ReduceSum", "Reshape", "Resize", "Slice"),
        *("Split", "Squeeze", "Tile", "TopK", "Unsqueeze", "Upsample"),
    }
)
"""Operators whose inputs after the first are attributes in PopART."""
_Read = tuple[Sequence[int], Sequence[int]]
_READ: Mapping[str, _Read] = {
    type_: read
    for types, read in (
        (
            """
            Add Cast Concat Expand Flatten Identity IdentityLoss Mean Neg Pad PrintTensor
            ReduceMean ReduceSum Reshape Resize Reverse Scale Slice Split Squeeze Sub Subsample Sum
            Tile Transpose Unsqueeze Upsample Dropout ShapedDropout
            """,
            ((), ()),
        ),
        (
            "Clip Exp Expm1 LeakyRelu ReduceLogSum Relu Sigmoid Softmax Sqrt Tanh",
            ((), (0,)),
        ),
        (
            """
            AveragePool GlobalAveragePool GlobalMaxPool MaxPool ReduceL2 ReduceLogSumExp ReduceMax
            ReduceMin
            """,
            ((0,), (0,)),
        ),
        ("BatchNormalization", ((0, 1), (3, 4))),
        ("GroupNormalization InstanceNormalization", ((0, 1), (1, 2))),
        ("Gather Scatter ScatterElements", ((1,), ())),
        ("OneHot Where", ((0,), ())),
        ("TopK ReduceMedian", ((), (1,))),
    )
    for type_ in types.split()
}
"""{operator: (operands, results) that its gradient reads}; by default all operands."""


class PlacedNode(Protocol):
    """The interface of nodes to the partitioner."""

    @property
    def op(self) -> OnnxOp: ...
    @property
    def inputs(self) -> list[str]: ...
    @property
    def outputs(self) -> list[str]: ...


def _is_constant(owner: object) -> bool:
    constant = isinstance(owner, OnnxOp) and owner.op_type == "Constant"
    return constant or isinstance(owner, Initializer)


def _bytes(infos: Mapping[str, TensorInfo], id: str) -> int:
    """The size of a tensor; 0 if its shape is unknown."""
    return infos[id].nbytes() if id in infos else 0


Node = TypeVar("Node", bound=PlacedNode)


@dataclass(eq=False)
class _Part(Generic[Node]):
    """A connected set of nodes, up to nodes that also depend on another set."""

    candidates: set[Node]
    """Readers of the set's tensors that are not visited yet."""
    cost: float = 0.0
    splits: dict[float, Node] = field(default_factory=dict)
    """{cost up to and including the node: node where all paths of the set join}."""
    ends: set[Node] = field(default_factory=set)
    """Nodes after which the set continues on the next IPU."""
    ipu: int | None = None

    def split_near(self, cost: float) -> Node | None:
        """The split nearest to a cost, if any split is at or above it."""
        above = [one for one in sorted(self.splits) if one >= cost]
        if not above:
            return None
        below = [one for one in sorted(self.splits) if one < cost]
        near = below and cost - below[-1] < above[0] - cost
        return self.splits.pop(below[-1] if near else above[0])


def place_automatically(
    nodes: Sequence[Node], model: SessionModel, shares: IpuShares
) -> dict[Node, int]:
    """{node: IPU}, with costs split in the target fractions."""
    if shares.ipus == 1 or not nodes:
        return dict.fromkeys(nodes, 0)
    shares.check()
    home, parts = _partition(nodes, model, shares)
    _assign(parts, shares)
    found = {}
    for node in nodes:
        part = home[node]
        assert part.ipu is not None, "every part has been given to an IPU"
        found[node] = part.ipu
        if node in part.ends:
            part.ipu += 1
    return found


def _partition(
    nodes: Sequence[Node], model: SessionModel, shares: IpuShares
) -> tuple[dict[Node, _Part[Node]], list[_Part[Node]]]:
    """
    Partitions nodes into sets; a new set starts at a reader of an input, or where two sets join.
    """
    home: dict[Node, _Part[Node]] = {}
    parts: list[_Part[Node]] = []
    readers = defaultdict[str, list[Node]](list)
    for node in nodes:
        for id in dict.fromkeys(node.inputs):
            readers[id].append(node)
    infos = model.infos()
    held = {name for name, value in model.values() if _is_constant(value.owner)}

    def begin(node: Node) -> _Part[Node]:
        part = _Part({node})
        parts.append(part)
        home.setdefault(node, part)
        return part

    for id in sorted(model.graph.input_names):
        for node in readers[id]:
            begin(node)
    for node in nodes:
        part = home[node] if node in home else begin(node)
        part.cost += shares.cost(node, infos, held)
        if node in part.candidates:
            part.candidates.remove(node)
            if not part.candidates:
                part.splits.setdefault(part.cost, node)
        for reader in (reader for id in node.outputs for reader in readers[id]):
            other = home.setdefault(reader, part)
            if other is part:
                part.candidates.add(reader)
            elif len(other.candidates) == 1 and not other.cost:
                other.candidates.discard(reader)
                part.candidates.add(reader)
                home[reader] = part
            else:
                parts.append(_Part({reader}))
                home[reader] = parts[-1]
    return home, parts


def _assign(parts: Sequence[_Part[Node]], shares: IpuShares) -> None:
    """Assigns sets to IPUs in order, splitting sets that exceed the remaining budget."""
    total = sum(part.cost for part in parts)
    done, ipu, waiting = 0.0, 0, list(parts)
    for number, share in enumerate(shares.ends(), 1):
        last = number == shares.ipus
        while waiting:
            part = waiting[0]
            behind, at_end = done + part.cost - share * total, False
            if behind > 0 and part.cost > 0 and not last:
                split = part.split_near(share * total - done)
                if split is not None:
                    part.ends.add(split)
                    part.ipu = ipu if part.ipu is None else part.ipu
                    ipu += 1
                    break
                at_end = True
            done += part.cost
            waiting.pop(0)
            part.ipu = ipu if part.ipu is None else part.ipu
            if (at_end or behind == 0) and not last and waiting:
                ipu += 1
                break
    if ipu != shares.ipus - 1:
        raise popart_exception(
            f"[AutoVirtualGraph] Couldn't find enough splits for {shares.ipus} IPUs. Only found "
            f"{ipu}",
            "SessionOptions.virtualGraphMode",
            "take a device of fewer IPUs, or VirtualGraphMode.Manual",
        )
