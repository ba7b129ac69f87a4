"""A graph of operators under PopART's names, which patterns may rewrite."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from popgraph.builder.opset.enums import RecomputeType, TileSet
from popgraph.builder.opset.tensorinfo import TensorInfo

Value = object
"""An attribute: a number, a text, or a list of either."""


def words(text: str) -> frozenset[str]:
    """The names in a text."""
    return frozenset(text.split())


class Kind(Enum):
    """Where a tensor comes from."""

    STREAM = "stream"
    CONSTANT = "constant"
    VARIABLE = "variable"
    COMPUTED = "computed"


class Context(Enum):
    """The part of a step's program in which an operator runs, in their order."""

    WEIGHTS_FROM_HOST = "WeightsFromHostFragment"
    NORMAL = "Normal"
    AFTER_BATCHES = "AccumulateOuterFragment"
    """Once the gradients of all micro-batches are there."""
    WEIGHTS_TO_HOST = "WeightsToHostFragment"

    @property
    def place(self) -> int:
        return list(Context).index(self)


@dataclass(frozen=True)
class Settings:
    """What every operator has besides its own attributes."""

    name: str = ""
    ipu: int | None = None
    stage: int | None = None
    phase: int | None = None
    recompute: RecomputeType = RecomputeType.Undefined
    priority: float = 0.0
    context: Context = Context.NORMAL
    tiles: TileSet = TileSet.Compute
    """On which tiles it is: those that compute, or those that talk to the outside."""
    location: tuple[int, ...] | None = None
    """Where its results are to be, as models have it."""
    excluded: frozenset[str] = frozenset()
    """Patterns that must leave the operator alone."""
    inplace: Mapping[str, float] = field(default_factory=dict)
    """The user's priorities of forms in place, by their types."""
    part: int | None = None
    """Which part of a batch it computes."""
    outline: Mapping[str, str] = field(default_factory=dict)
    """Attributes that keep operators from being outlined together."""

    @property
    def after_batches(self) -> bool:
        """Whether it runs once the gradients of all micro-batches are there."""
        return self.context is Context.AFTER_BATCHES

    def renamed(self, name: str) -> Settings:
        return replace(self, name=name)


COLLECTIVES = words(
    "ReplicatedAllReduce ReplicatedAllReduceInplace ReplicatedAllGather ReplicatedReduceScatter"
)
"""What replicas tell each other by."""

_IN_PLACE = words("ReplicatedAllReduceInplace DynamicUpdateInplace DynamicAddInplace")
"""What changes its first input, whoever reads the result."""

TIED_GRADIENT = "PopartTiedGatherGrad"
"""Stays although nothing reads it: a pattern takes it from there."""

_STEP_OF_ADAM = 3
"""AdamUpdater counts its steps, and only that."""


@dataclass(eq=False)
class Op:
    """An operator: its type, its tensors by index, its attributes."""

    type: str
    inputs: dict[int, str]
    outputs: dict[int, str]
    attributes: dict[str, Value] = field(default_factory=dict)
    settings: Settings = field(default_factory=Settings)
    called: tuple[str, ...] = ()
    """The graphs that it runs, by name."""
    writes: bool = False
    """It changes a variable or the host's memory, so that it stays although nothing reads it."""
    backward: bool = False
    """It belongs to what follows from the loss."""
    optimizes: bool = False
    """It is part of an optimizer's rule, though it changes no variable."""
    number: int = -1

    @property
    def changes(self) -> int | None:
        """The input that it writes over, if any."""
        index = _STEP_OF_ADAM if self.type == "AdamUpdater" else 0
        return index if self.writes and self.outputs and index in self.inputs else None

    @property
    def modifies(self) -> int | None:
        """The input whose memory it changes, if any: a variable's, or that of its result."""
        in_place = self.type in _IN_PLACE or self.type.endswith("LhsInplace")
        return 0 if in_place else self.changes

    def input(self, index: int) -> str:
        return self.inputs[index]

    @property
    def output(self) -> str:
        """The first output."""
        return self.outputs[min(self.outputs)]

    def integers(self, name: str) -> list[int]:
        """An attribute that is a list of integers; absent, it is empty."""
        value = self.attributes.get(name)
        return [int(one) for one in value] if isinstance(value, Sequence) else []

    def integers_or(self, name: str, default: int) -> int:
        """An attribute that is an integer."""
        value = self.attributes.get(name, default)
        return value if isinstance(value, int) else default


class OpGraph:
    """Operators in an order in which they can run, and what is known of their tensors."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.scope = ""
        """What names of its tensors begin with, and the attribute of its operators."""
        self._ops: list[Op] = []
        self._held: set[Op] = set()
        self.infos: dict[str, TensorInfo] = {}
        self.kinds: dict[str, Kind] = {}
        self.inputs: list[str] = []
        self.results: list[str] = []
        """What a called graph gives back, and must not lose."""
        self.kept: set[str] = set()
        """Anchors."""
        self.constants: dict[str, float] = {}
        """Scalars that patterns brought, by tensor."""
        self.whole: dict[str, list[int]] = {}
        """Of tensors of which each replica has a share: the shape of all shares together."""
        self.later: dict[Op, set[Op]] = {}
        """What must wait until an operator is done, besides what reads its results."""
        self.own: set[tuple[Op, Op]] = set()
        """Of these, operators and what waits for them that hand this on to no other operator."""
        self.ordered: set[Op] = set()
        """What was told when to run, by whichever of these."""
        self.ties: set[tuple[Op, Op]] = set()
        """Operators and those that are to follow at once, if nothing more important is against."""
        self._producers: dict[str, Op] = {}
        self._consumers: dict[str, dict[Op, None]] = {}
        self._numbers = self._fresh = 0

    @property
    def ops(self) -> list[Op]:
        """In an order in which they can run; another order is set as a whole."""
        return self._ops

    @ops.setter
    def ops(self, ops: list[Op]) -> None:
        self._ops, self._held = ops, set(ops)

    def holds(self, op: Op) -> bool:
        """Whether an operator is still there."""
        return op in self._held

    # tensors

    def add_tensor(self, id: str, info: TensorInfo, kind: Kind = Kind.COMPUTED) -> str:
        self.infos[id], self.kinds[id] = info, kind
        return id

    def shape(self, id: str) -> list[int]:
        return self.infos[id].shape()

    def kind(self, id: str) -> Kind:
        return self.kinds.get(id, Kind.COMPUTED)

    def fresh(self, base: str, info: TensorInfo) -> str:
        """A new tensor beside another one."""
        self._fresh += 1
        return self.add_tensor(f"{base}__t{self._fresh}", info)

    def part(self, base: str, number: int, info: TensorInfo) -> str:
        """A new tensor that is one part of another one."""
        self._fresh += 1
        return self.add_tensor(f"{base}__s{number}_{number + 1}_{self._fresh}", info)

    def constant(self, base: str, value: float, info: TensorInfo) -> str:
        """A new tensor of one known number."""
        id = self.fresh(base, info)
        self.kinds[id], self.constants[id] = Kind.CONSTANT, value
        return id

    def is_protected(self, id: str) -> bool:
        """Whether the tensor is asked for by name."""
        return id in self.kept or id in self.results

    def producer(self, id: str) -> Op | None:
        return self._producers.get(id)

    def consumers(self, id: str) -> list[Op]:
        return list(self._consumers.get(id, ()))

    def uses(self, id: str) -> int:
        """How often operators read a tensor."""
        return sum(list(op.inputs.values()).count(id) for op in self.consumers(id))

    # operators

    def add(self, op: Op, before: Op | None = None) -> Op:
        """Adds an operator, at the end or before another one."""
        op.number, self._numbers = self._numbers, self._numbers + 1
        place = len(self.ops) if before is None else self.ops.index(before)
        self.ops.insert(place, op)
        self._held.add(op)
        for id in op.outputs.values():
            self._producers[id] = op
        for id in op.inputs.values():
            self._consumers.setdefault(id, {})[op] = None
        return op

    def run_after(self, op: Op, first: Op) -> None:
        """Has an operator wait for another one of which it reads nothing."""
        self.later.setdefault(first, set()).add(op)
        self.ordered.update((first, op))

    def run_itself_after(self, op: Op, first: Op) -> None:
        """Has an operator wait for another one; what takes the place of either does not."""
        self.own.add((first, op))
        self.run_after(op, first)

    def tie(self, id: str, *more: str) -> None:
        """Has the producer of each tensor follow that of the one before as soon as it can."""
        for first, then in zip((id, *more), more, strict=False):
            before, op = self.producer(first), self.producer(then)
            if before is not None and op is not None:
                self.ties.add((before, op))
                self.ordered.update((before, op))

    def order_alike(self, op: Op, made: Op) -> None:
        """Has an operator wait for what another one waits for, and be waited for as that is."""
        for first, later in list(self.later.items()):
            if op in later and (first, op) not in self.own:
                self.run_after(made, first)
        for waiting in list(self.later.get(op, ())):
            if (op, waiting) not in self.own:
                self.run_after(waiting, made)

    def remove(self, op: Op) -> None:
        self.ops.remove(op)
        self._held.remove(op)
        for id in op.outputs.values():
            if self._producers.get(id) is op:
                del self._producers[id]
        for id in set(op.inputs.values()):
            del self._consumers[id][op]

    def forget(self, op: Op) -> None:
        """Removes an operator whose outputs others compute by now."""
        outputs = dict(op.outputs)
        op.outputs = {}
        self.remove(op)
        op.outputs = outputs

    def connect(self, op: Op, index: int, id: str) -> None:
        """Makes an operator read another tensor."""
        old, op.inputs[index] = op.inputs.get(index), id
        if old is not None and old not in op.inputs.values():
            del self._consumers[old][op]
        self._consumers.setdefault(id, {})[op] = None

    def rename_output(self, op: Op, index: int, id: str) -> None:
        """Makes an operator compute a tensor of another name."""
        self._producers.pop(op.outputs.get(index, ""), None)
        op.outputs[index] = id
        self._producers[id] = op

    def replace_uses(self, old: str, new: str) -> None:
        for op in self.consumers(old):
            for index, id in list(op.inputs.items()):
                if id == old:
                    self.connect(op, index, new)

    def prune(self) -> None:
        """Drops what neither an anchor nor a variable needs."""
        needed = {op: None for op in self.ops if self._is_root(op)}
        waiting = list(needed)
        while waiting:
            for id in waiting.pop().inputs.values():
                before = self.producer(id)
                if before is not None and before not in needed:
                    needed[before] = None
                    waiting.append(before)
        for op in [op for op in self.ops if op not in needed]:
            self.remove(op)

    def _is_root(self, op: Op) -> bool:
        return (
            op.writes
            or op.type == TIED_GRADIENT
            or any(self.is_protected(id) for id in op.outputs.values())
        )

    def before(self, op: Op) -> Iterator[Op]:
        """What an operator depends on, it itself first."""
        seen, waiting = {op: None}, [op]
        while waiting:
            one = waiting.pop()
            yield one
            for id in one.inputs.values():
                first = self._producers.get(id)
                if first is not None and first not in seen:
                    seen[first] = None
                    waiting.append(first)

    def after(self, op: Op) -> Iterator[Op]:
        """What depends on an operator, it itself first."""
        seen, waiting = {op: None}, [op]
        while waiting:
            one = waiting.pop()
            yield one
            for id in one.outputs.values():
                for user in self._consumers.get(id, ()):
                    if user not in seen:
                        seen[user] = None
                        waiting.append(user)
