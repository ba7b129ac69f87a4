"""Virtual graphs by cost: how PopART shares the operators of a graph among IPUs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from popgraph.builder.opset.exceptions import popart_exception
from popgraph.builder.opset.tensorinfo import TensorInfo
from popgraph.session.options import SessionOptions
from popgraph.session.popart_ir.gradient_rules import rules_of
from popgraph.session.popart_ir.graph import Kind, Op, OpGraph
from popgraph.session.popart_ir.schedule import scheduled


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

    def cost(self, graph: OpGraph, op: Op) -> float:
        """The bytes of an operator's weights, and of what its gradients will read."""
        kinds = {index: graph.kind(id) for index, id in op.inputs.items()}
        held = {index for index, kind in kinds.items() if kind in (Kind.VARIABLE, Kind.CONSTANT)}
        weights = {op.inputs[index] for index in held}
        total = sum(_bytes(graph, id) for id in weights) * (2 if self.accumulates else 1)
        if not self.trains:
            return total
        read = {word for rule in rules_of(op) for word in rule.reads if word[0] != "g"}
        for word in read - {f"i{index}" for index in held}:
            tensors = op.inputs if word[0] == "i" else op.outputs
            if (id := tensors.get(int(word[1:]))) is not None:
                total += _bytes(graph, id)
        return total


def _bytes(graph: OpGraph, id: str) -> int:
    info: TensorInfo = graph.infos[id]
    return info.nelms() * info.row.numpy.itemsize


@dataclass(eq=False)
class _Part:
    """Operators that follow from one of them, until others join in."""

    candidates: set[Op]
    """What reads from the part, and has not been seen yet."""
    cost: float = 0.0
    splits: dict[float, Op] = field(default_factory=dict)
    """Operators in which all comes together, by the cost up to them."""
    ends: set[Op] = field(default_factory=set)
    """Those behind which another IPU goes on."""
    ipu: int | None = None

    def split_near(self, cost: float) -> Op | None:
        """The split whose cost is nearest, if any is not below."""
        above = [one for one in sorted(self.splits) if one >= cost]
        if not above:
            return None
        below = [one for one in sorted(self.splits) if one < cost]
        near = below and cost - below[-1] < above[0] - cost
        return self.splits.pop(below[-1] if near else above[0])


def place_automatically(graph: OpGraph, shares: Shares) -> None:
    """Puts each operator on an IPU, so that these have their shares of the costs."""
    if shares.ipus == 1 or not graph.ops:
        for op in graph.ops:
            op.settings = replace(op.settings, ipu=0)
        return
    shares.check()
    order = scheduled(graph)
    home, parts = _parted(graph, order, shares)
    _share_out(parts, shares)
    for op in order:
        part = home[op]
        op.settings = replace(op.settings, ipu=part.ipu)
        if op in part.ends and part.ipu is not None:
            part.ipu += 1


def _parted(
    graph: OpGraph, order: Sequence[Op], shares: Shares
) -> tuple[dict[Op, _Part], list[_Part]]:
    """The part of each operator; a part begins with a reader of an input, or where two meet."""
    home: dict[Op, _Part] = {}
    parts: list[_Part] = []

    def begin(op: Op) -> _Part:
        part = _Part({op})
        parts.append(part)
        home.setdefault(op, part)
        return part

    for id in sorted(id for id in graph.inputs if graph.kind(id) is Kind.STREAM):
        for op in graph.consumers(id):
            begin(op)
    for op in order:
        part = home[op] if op in home else begin(op)
        part.cost += shares.cost(graph, op)
        if op in part.candidates:
            part.candidates.remove(op)
            if not part.candidates:
                part.splits.setdefault(part.cost, op)
        readers = [reader for id in op.outputs.values() for reader in graph.consumers(id)]
        for reader in readers:
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


def _share_out(parts: Sequence[_Part], shares: Shares) -> None:
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
