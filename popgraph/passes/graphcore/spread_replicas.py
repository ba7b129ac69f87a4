"""Replicates the program of one replica for all replicas, in one process and over ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from xdsl.dialects.builtin import ArrayAttr, IntegerAttr, ModuleOp, i64
from xdsl.ir import Block, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from popgraph.dialects.graphcore.arithmetic import AddOp, DivOp, MulOp
from popgraph.dialects.graphcore.base import Operand, shape_of, tensor_of
from popgraph.dialects.graphcore.broadcasting import reshaped, scalar
from popgraph.dialects.graphcore.collectives import (
    COMBINED_BY,
    LOCAL,
    MEAN,
    AllGatherOp,
    AllReduceOp,
    Collective,
    ReduceScatterOp,
)
from popgraph.dialects.graphcore.exchanges import ExchangeOp
from popgraph.dialects.graphcore.functions import CastOp
from popgraph.dialects.graphcore.logic import CompareOp
from popgraph.dialects.graphcore.movement import ConcatOp, SliceOp
from popgraph.dialects.graphcore.random import REPLICA_STREAMS, SEED
from popgraph.dialects.locations import origin
from popgraph.dialects.program import GraphOp, ReturnOp, UpdateOp, VariableOp, graphs_of
from popgraph.passes.analysis.replace import made_for
from popgraph.passes.base import Compilation, Pass
from popgraph.passes.options import GRADIENT, Options
from popgraph.passes.properties import SPREAD, UNREPORTED
from popgraph.passes.replication import Replication
from popgraph.support.errors import PassError
from popgraph.support.ranks.communicator import ALL_GATHER, ALL_REDUCE, REDUCE_SCATTER
from popgraph.support.replicas import grouped
from popgraph.support.shapes import prod

GROUPS = "groups"
"""Attribute of a variable with the initial value of each group, if they differ."""


@dataclass(frozen=True)
class SpreadReplicas(Pass):
    """
    y = all_reduce x  ->  y = x + x@replica1 + ...; other operations are copied for each replica.

    Only when `replicas`, the text form of a `Replication`, has several replicas; otherwise
    collectives become identities. Inputs and outputs of replica 1 are named `x@replica1`, variables
    that not all replicas share `w@group1`. The gradients of a variable are summed over the replicas
    that share it, or that `added` lists, as one output for each copy.
    """

    name = "spread-replicas"
    KEEPS_MEANING: ClassVar[bool] = False
    NEEDS = (UNREPORTED,)
    GIVES = (SPREAD,)
    AFTER = ("autodiff",)

    replicas: str = str(Replication())

    @classmethod
    def of(cls, options: Options) -> SpreadReplicas:
        return cls(str(options.replicas or Replication()))

    def run(self, compilation: Compilation, module: ModuleOp) -> None:
        replicas = Replication.parse(self.replicas)
        for graph in graphs_of(module):
            if not replicas.is_one:
                _check_bodies(graph)
                spread = _Spread(graph, replicas)
                spread.write()
                Rewriter.replace_op(graph, spread.graph)
            else:
                _alone(graph)


def _alone(graph: GraphOp) -> None:
    """Replaces collectives by their result for a single replica."""
    for op in list(graph.walk()):
        if isinstance(op, Collective):
            with made_for(op):
                (value,) = op.together([op.x])
            op.result.replace_all_uses_with(SSAValue.get(value))
            Rewriter.erase_op(op)


def _check_bodies(graph: GraphOp) -> None:
    for op in graph.walk():
        if isinstance(op, Collective) and op.parent is not graph.block:
            raise PassError(
                "collectives of replicas are not supported inside a loop or a branch",
                origin(op) or op.name,
                "move the collective out of the body",
            )


@dataclass
class _Spread:
    """
    The graph of all replicas under construction.

    Operations whose operands are shared by all replicas are computed once.
    """

    source: GraphOp
    replicas: Replication
    graph: GraphOp = field(init=False)
    values: list[dict[SSAValue, SSAValue]] = field(init=False)
    """For each replica, the new values of the source's values."""

    def __post_init__(self) -> None:
        self.values = [{} for _ in range(self.replicas.count)]
        names = [
            (name, argument, copy)
            for name, argument in self.source.inputs.items()
            for copy in dict.fromkeys(self.replicas.inputs(name))
        ]
        types = [argument.type for _, argument, _ in names]
        self.graph = GraphOp(self.source.sym_name.data, [copy for _, _, copy in names], types)
        made = self.graph.inputs
        for name, argument in self.source.inputs.items():
            for copy in self.replicas.inputs(name):
                made[copy].name_hint = argument.name_hint
            self._know(argument, [made[copy] for copy in self.replicas.inputs(name)])
        moved = {op.variable.text for op in self.source.updates()} - {SEED}
        self.replicas = self.replicas.with_own(moved)

    @property
    def block(self) -> Block:
        return self.graph.block

    def _know(self, old: SSAValue, copies: Sequence[SSAValue]) -> None:
        for values, copy in zip(self.values, copies, strict=True):
            values[old] = copy

    def _of(self, value: SSAValue) -> list[SSAValue]:
        """A value's copies on all replicas."""
        return [values[value] for values in self.values]

    def write(self) -> None:
        for op in self.source.block.ops:
            match op:
                case VariableOp():
                    self._variable(op)
                case UpdateOp():
                    copies = zip(self._variables(op), self._of(op.value), strict=True)
                    self.block.add_ops(UpdateOp(*one) for one in dict(copies).items())
                case ReturnOp():
                    self._end(op)
                case Collective():
                    self._exchange(op)
                case _:
                    self._copy(op)

    def _variables(self, op: VariableOp | UpdateOp) -> list[str]:
        return self.replicas.variables(op.variable.text)

    def _variable(self, op: VariableOp) -> None:
        names = self._variables(op)
        distinct = list(dict.fromkeys(names))
        firsts = op.attributes.get(GROUPS)
        literals = [op.literal] * len(distinct)
        if isinstance(firsts, ArrayAttr) and len(firsts) == len(distinct):
            literals = list(firsts)
        pairs = zip(distinct, literals, strict=True)
        made = {name: VariableOp(name, literal) for name, literal in pairs}
        for copy in made.values():
            copy.location, copy.result.name_hint = op.location, op.result.name_hint
            self.block.add_op(copy)
        self._know(op.result, [made[name].result for name in names])

    def _copy(self, op: Operation) -> None:
        # Replicas must draw different numbers, even from the same operands.
        shared = not any(_draws(inner) for inner in op.walk()) and all(
            len(set(self._of(value))) == 1 for value in op.operands
        )
        made: list[Operation] = []
        for replica in range(1 if shared else self.replicas.count):
            copy = op.clone(dict(self.values[replica]))
            for inner in filter(_draws, copy.walk()):
                stream = inner.properties["stream"]
                assert isinstance(stream, IntegerAttr)
                number = self.replicas.first + replica
                moved = stream.value.data + number * REPLICA_STREAMS
                inner.properties["stream"] = IntegerAttr(moved, i64)
            self.block.add_op(copy)
            made.append(copy)
        made *= self.replicas.count // len(made)
        for place, result in enumerate(op.results):
            self._know(result, [copy.results[place] for copy in made])

    def _exchange(self, op: Collective) -> None:
        have, get = self._of(op.x), dict[int, SSAValue]()
        between = self._between(op)
        if between is not None:
            with made_for(op, InsertPoint.at_end(self.block)):
                values = [SSAValue.get(one) for one in between.received(have)]
            self._know(op.result, values)
            return
        for group in self.replicas.groups_of(**op.groups):
            with made_for(op, InsertPoint.at_end(self.block)):
                received = op.together([have[replica] for replica in group])
            get |= {
                replica: SSAValue.get(value) for replica, value in zip(group, received, strict=True)
            }
        self._know(op.result, [get[replica] for replica in range(self.replicas.count)])

    def _between(self, op: Collective) -> RankCollective | None:
        """The collective between ranks, if its groups have members in several processes."""
        count, ranks, total = self.replicas.count, self.replicas.ranks, self.replicas.total
        stride, size = op.groups["stride"], op.groups["size"]
        if total % (stride * size):
            raise PassError(
                f"{total} replicas cannot be taken in groups of {size} at stride {stride}"
            )
        if ranks == 1 or count % (stride * size) == 0:
            return None
        if size == total:
            return RankCollective(op, 1, ranks, self.replicas.rank)
        if count > 1:
            raise PassError(
                f"groups of {size} replicas at stride {stride} have members in several processes, "
                f"but each process has {count} replicas",
                origin(op) or op.name,
                "use one replica per process, or groups of all replicas or of one process",
            )
        members = next(one for one in grouped(ranks, stride, size) if self.replicas.rank in one)
        return RankCollective(op, stride, size, members.index(self.replicas.rank))

    def _end(self, op: ReturnOp) -> None:
        outputs: dict[str, SSAValue] = {}
        for name, value in self.source.outputs.items():
            outputs |= dict(zip(self.replicas.copies(name), self._of(value), strict=True))
        trained = {one.variable.text for one in self.source.variables()}
        for name, value in self.source.outputs.items():
            if name.startswith(GRADIENT) and name.removeprefix(GRADIENT) in trained:
                outputs |= self._added_up(name.removeprefix(GRADIENT), value)
        if op.index_checks:
            raise PassError("check-indices must run after spread-replicas", "spread-replicas")
        self.block.add_op(ReturnOp(list(outputs.values()), list(outputs)))

    def _added_up(self, name: str, gradient: SSAValue) -> Iterator[tuple[str, SSAValue]]:
        """The summed gradient of each copy of a variable."""
        copies, values = self.replicas.variables(name), self._of(gradient)
        for group in self.replicas.adding(name):
            total = values[group[0]]
            for replica in group[1:]:
                sum_ = AddOp(total, values[replica])
                self.block.add_op(sum_)
                total = sum_.result
            for copy in dict.fromkeys(copies[replica] for replica in group):
                yield GRADIENT + copy, total


def _draws(op: Operation) -> bool:
    """Whether an operation draws random numbers; each replica has its own streams."""
    return "stream" in op.properties


# Collectives between replicas of several processes


def _truth(value: Operand) -> Operand:
    is_true = CompareOp(value, scalar(0, value), predicate="ne")
    return CastOp(is_true, to=tensor_of(value).element_type)


@dataclass(frozen=True)
class _Combination:
    """A reduction of replicas in terms of one that exchanges of ranks support."""

    combine: str
    before: Callable[[Operand], Operand] = lambda value: value
    is_mean: bool = False


_COMBINATIONS: Mapping[str, _Combination] = {
    **{name: _Combination(name) for name in ("Add", "Mul", "Min", "Max")},
    MEAN: _Combination("Add", is_mean=True),
    "LogicalAnd": _Combination("Min", _truth),
    "LogicalOr": _Combination("Max", _truth),
    "SquareAdd": _Combination("Add", lambda value: MulOp(value, value)),
}


@dataclass(frozen=True)
class RankCollective:
    """A collective between replicas of several ranks."""

    op: Collective
    stride: int
    size: int
    """A group has `size` ranks at distance `stride`."""
    rank: int
    """The index of this rank in its group."""

    def received(self, values: Sequence[SSAValue]) -> list[Operand]:
        """The results of this rank's replicas for their values (implicit builder)."""
        match self.op:
            case AllGatherOp():
                rows = [_row(one) for one in values]
                row = ConcatOp(rows, axis=0) if len(rows) > 1 else rows[0]
                return [self._exchanged(ALL_GATHER, row)] * len(values)
            case AllReduceOp() if self.op.combine.data == LOCAL:
                return list(values)
            case AllReduceOp():
                total = self._exchanged(ALL_REDUCE, _row(self._combined(values)), self._combination)
                return [self._divided(reshaped(total, shape_of(values[0])))] * len(values)
            case ReduceScatterOp():
                return self._shares(self.op, values)
        raise AssertionError(f"{self.op.name} is between replicas")

    @property
    def _combination(self) -> _Combination:
        assert isinstance(self.op, AllReduceOp | ReduceScatterOp)
        return _COMBINATIONS[self.op.combine.data]

    def _combined(self, values: Sequence[SSAValue]) -> Operand:
        """The reduction of this process's values, before a mean is divided."""
        made = [SSAValue.get(self._combination.before(one)) for one in values]
        return made[0] if len(made) == 1 else COMBINED_BY[self._combination.combine](made)

    def _divided(self, value: Operand) -> Operand:
        count = self.op.groups["size"]
        return DivOp(value, scalar(count, value)) if self._combination.is_mean else value

    def _exchanged(self, kind: str, row: Operand, way: _Combination | None = None) -> Operand:
        combine = "Add" if way is None else way.combine
        return ExchangeOp(row, kind=kind, size=self.size, stride=self.stride, combine=combine)

    def _shares(self, op: ReduceScatterOp, values: Sequence[SSAValue]) -> list[Operand]:
        (share,), count = shape_of(op.result), len(values)
        if op.combine.data == LOCAL:
            first = self.rank * count
            return [
                _part(op.padded(one), (first + at) * share, share) for at, one in enumerate(values)
            ]
        row = self._exchanged(REDUCE_SCATTER, op.padded(self._combined(values)), self._combination)
        return [self._divided(_part(row, at * share, share)) for at in range(count)]


def _row(value: Operand) -> Operand:
    return reshaped(value, (prod(shape_of(value)),))


def _part(row: Operand, start: int, count: int) -> Operand:
    if shape_of(row) == (count,):
        return row
    return SliceOp(row, starts=[start], sizes=[count], steps=[1])
