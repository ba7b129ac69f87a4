"""Virtual graphs by cost: how the nodes of a model are distributed over IPUs."""

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
class Shares:
    """How many IPUs there are, and what counts."""

    ipus: int
    ratios: Sequence[float] = ()
    """Which share of the costs each IPU takes; none: all the same."""
    trains: bool = False
    accumulates: bool = False
    """Every weight has gradients beside it that are added up."""

    @classmethod
    def of(cls, options: SessionOptions, ipus: int, *, trains: bool) -> Shares:
        ratios = tuple(options.virtualGraphSplitRatios)
        return cls(ipus, ratios, trains, options.enableGradientAccumulation)

    def check(self) -> None:
        """Refuses ratios that are no shares of one whole."""
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
        """The shares of the first IPU, of the first two, and so on."""
        for count in range(1, self.ipus + 1):
            yield sum(self.ratios[:count]) if self.ratios else count / self.ipus

    def cost(self, node: PlacedNode, infos: Mapping[str, TensorInfo], held: Collection[str]) -> int:
        """The bytes of a node's weights and constants, and of what its gradients read."""
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
"""Operators whose inputs behind the first one are attributes in PopART."""
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
"""Which inputs and outputs gradients read; of other operators, all inputs."""


class PlacedNode(Protocol):
    """A node of the model, as its placement looks at it."""

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
    """The size of a tensor; one whose shape is not known counts as nothing."""
    return infos[id].nbytes() if id in infos else 0


Node = TypeVar("Node", bound=PlacedNode)


@dataclass(eq=False)
class _Part(Generic[Node]):
    """Nodes that follow from one of them, until others join in."""

    candidates: set[Node]
    """What reads from the part, and has not been seen yet."""
    cost: float = 0.0
    splits: dict[float, Node] = field(default_factory=dict)
    """Nodes in which all comes together, by the cost up to them."""
    ends: set[Node] = field(default_factory=set)
    """Nodes after which another IPU goes on."""
    ipu: int | None = None

    def split_near(self, cost: float) -> Node | None:
        """The split whose cost is nearest, if any is not below."""
        above = [one for one in sorted(self.splits) if one >= cost]
        if not above:
            return None
        below = [one for one in sorted(self.splits) if one < cost]
        near = below and cost - below[-1] < above[0] - cost
        return self.splits.pop(below[-1] if near else above[0])


def automatic_places(nodes: Sequence[Node], model: SessionModel, shares: Shares) -> dict[Node, int]:
    """An IPU for each node, so that the IPUs have their shares of the costs."""
    if shares.ipus == 1 or not nodes:
        return dict.fromkeys(nodes, 0)
    shares.check()
    home, parts = _parted(nodes, model, shares)
    _share_out(parts, shares)
    found = {}
    for node in nodes:
        part = home[node]
        assert part.ipu is not None, "every part has been given to an IPU"
        found[node] = part.ipu
        if node in part.ends:
            part.ipu += 1
    return found


def _parted(
    nodes: Sequence[Node], model: SessionModel, shares: Shares
) -> tuple[dict[Node, _Part[Node]], list[_Part[Node]]]:
    """The part of each node; a part begins with a reader of an input, or where two meet."""
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


def _share_out(parts: Sequence[_Part[Node]], shares: Shares) -> None:
    """Gives parts to IPUs in order; a part that is too large is split."""
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
