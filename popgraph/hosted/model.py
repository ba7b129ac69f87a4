"""The steps of a model with host steps: partitions the model and runs the steps."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any, TypeAlias

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from popgraph.backends.base import ComputedBy, Executable, refuse_donations
from popgraph.dialects.onnx import OnnxOp, SchemaOp, model_of
from popgraph.dialects.onnx.containers import value_name
from popgraph.dialects.onnx.types import static_shape
from popgraph.dialects.program import WeightStore
from popgraph.hosted.host import LOOPS, Host
from popgraph.hosted.part import LazyProgram, Role, RunnerFactory, Values
from popgraph.open_model import SPECIALISATIONS
from popgraph.passes.onnx.infer_shapes import infer_shapes, specialise
from popgraph.passes.onnx.number_labels import number_labels
from popgraph.passes.onnx.partition import (
    HostStep,
    Segment,
    Step,
    inline_functions,
    is_branch,
    is_literal,
    maker_of,
    partition,
    python_nodes,
    read_by,
    steps_of,
)
from popgraph.support import dtypes
from popgraph.support.arrays import Array
from popgraph.support.dtypes import DType
from popgraph.support.errors import NeedsHostError, RunError
from popgraph.support.locks import Lock
from popgraph.support.shapes import Shape


@dataclass(frozen=True)
class Chain:
    """
    The steps of a model without host steps, where one program per segment fits all values.

    Looking values up by SSA value instead of by name takes 4 microseconds longer per call, since
    xDSL hashes values in Python.
    """

    steps: Sequence[Step]
    parts: Sequence[tuple[LazyProgram, tuple[str, ...]]]
    """The parts in order, with the names of their inputs."""
    values: Mapping[str, SSAValue]
    outputs: Mapping[str, str]
    """Output name -> name of its value."""

    @staticmethod
    def of(
        steps: Sequence[Step],
        parts: Sequence[LazyProgram],
        inputs: Mapping[str, SSAValue],
        outputs: Mapping[str, SSAValue],
    ) -> Chain | None:
        """
        None if a segment reads a value that neither an input nor a segment provides: a literal.
        """
        values = dict(inputs)
        for part in parts:
            if not _is_subset(part.piece.inputs, values):
                return None
            for name, value in part.piece.outputs.items():
                if values.setdefault(name, value) is not value:
                    return None
        named = {name: value_name(value) for name, value in outputs.items()}
        if not _is_subset({named[name]: value for name, value in outputs.items()}, values):
            return None
        return Chain(steps, [(part, tuple(part.piece.inputs)) for part in parts], values, named)

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Runs the chain; raises `SplitRequired` if a segment has to be split."""
        known = dict(inputs)
        for at, (part, names) in enumerate(self.parts):
            try:
                known |= part.call({name: known[name] for name in names})
            except NeedsHostError as error:
                raise SplitRequired(
                    at, {self.values[name]: known[name] for name in known}
                ) from error
        return {name: known[value] for name, value in self.outputs.items()}


class SplitRequired(Exception):
    """A segment of a chain has no program; the values computed before it remain valid."""

    def __init__(self, at: int, values: Values) -> None:
        super().__init__()
        self.at = at
        self.values = values


def _is_subset(subset: Mapping[str, SSAValue], values: Mapping[str, SSAValue]) -> bool:
    return all(values.get(name) is value for name, value in subset.items())


StepListener: TypeAlias = Callable[[Step, Values], None]
"""Called with each step that has run, and all values known at that time."""


REASON_NOT_DONATED = "Python computes a part of the model"
"""The reason why inputs cannot be donated."""


class Memory:
    """The memory of arrays, by the object that owns it."""

    def __init__(self, values: Iterable[Any]) -> None:
        self._arrays = defaultdict[int, list[Array]](list)
        for value in values:
            for one in value if isinstance(value, list) else [value]:
                if isinstance(one, np.ndarray):
                    self._arrays[_owner(one)].append(one)

    def holds(self, array: Array) -> bool:
        """Whether an array may share memory with one of these."""
        # Only arrays of one owner are compared: a language model has hundreds of caches.
        others = self._arrays.get(_owner(array), ())
        return any(np.may_share_memory(array, other) for other in others)

    def taken(self, value: Any, besides: Memory) -> Any:
        """A value, copied if it shares memory with one of these or of `besides`; adds it here."""
        if isinstance(value, list):
            return [self.taken(one, besides) for one in value]
        if not isinstance(value, np.ndarray):
            return value
        found: Array = value.copy() if self.holds(value) or besides.holds(value) else value
        self._arrays[_owner(found)].append(found)
        return found


def _owner(array: Array) -> int:
    """The identity of the object that owns the memory of an array."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return id(array if array.base is None else array.base)


class HostedModel:
    """
    The steps of a model; each segment is compiled when it first runs.

    A segment with a node without static form (`NeedsHostError`) is split. If the values of the
    node's inputs determine its shapes, a new segment starts at the node and is specialised for
    these values, as long as there are few. Otherwise the host computes the node.
    """

    def __init__(
        self,
        module: ModuleOp,
        store: WeightStore,
        factory: RunnerFactory,
        reason: NeedsHostError | None = None,
        *,
        in_python: bool = False,
    ) -> None:
        """
        `reason` is the error that says why the model cannot be a single program.

        With `in_python`, nodes with sequences or optionals are not compiled.
        """
        # Not a pass: the pipeline runs per segment, after the cut. Nodes inside functions have to
        # be visible before the cut, whereas normalize inlines functions only within a segment.
        inline_functions(module, store, model_of(module).functions)
        number_labels(module)
        if reason is not None:
            infer_shapes(module, store)
        steps = partition(module, store, in_python=in_python)
        self._model = model_of(module)
        self._host = Host(self._model, store, factory)
        self._factory = factory
        self._hosted = set(python_nodes(module, in_python=in_python))
        self._deciding: set[OnnxOp] = set()
        self._lock = Lock()
        self._splits: dict[Segment, list[Step]] = {}
        """Steps that replaced a split segment."""
        self._stable: set[Segment] = set()
        """Segments that need no further splits for changing shapes."""
        self._parts: dict[Segment, LazyProgram] = {}
        self._values: dict[Segment, set[tuple[bytes, ...]]] = {}
        """The values that determined the structure of a segment so far."""
        graph = self._model.graph
        self._literals: Values = {}
        self._host.literals(graph, self._literals)
        self._literal_memory = Memory(self._literals.values())
        self._outputs = dict(zip(graph.output_names, graph.yielded, strict=True))
        self.steps = steps
        self._number(steps)
        self._chain = self._build_chain()
        if reason is not None:
            (whole,) = (step for step in steps if isinstance(step, Segment))
            self._split(whole, reason)

    def program(self, inputs: Mapping[str, Any]) -> Executable:
        """The steps as an executable; shapes may differ from call to call."""
        arrays = {name: value for name, value in inputs.items() if is_numeric(value)}
        return HostedExecutable(
            self,
            {name: (dtypes.from_numpy(array.dtype), array.shape) for name, array in arrays.items()},
        )

    def run(
        self,
        inputs: Mapping[str, Any],
        donate: Collection[str] = (),
        listener: StepListener | None = None,
    ) -> dict[str, Any]:
        """
        The outputs for these inputs: arrays, lists for sequences, None for absent optionals.

        Arrays have memory of their own, as those of a compiled program.
        """
        refuse_donations(donate, REASON_NOT_DONATED)
        found = self._run(inputs, listener)
        taken = Memory(inputs.values())
        return {
            name: taken.taken(value, besides=self._literal_memory) for name, value in found.items()
        }

    def _run(self, inputs: Mapping[str, Any], listener: StepListener | None) -> dict[str, Any]:
        """The outputs, which may be inputs, weights, or views of them."""
        chain = self._chain
        if chain is None or listener is not None or not self._host.are_declared(inputs):
            return self._run_steps(self.steps, self._host.given(inputs), listener)
        try:
            return chain.run(inputs)
        except SplitRequired as split:
            return self._run_steps(chain.steps[split.at :], split.values, listener)

    def _run_steps(
        self, steps: Sequence[Step], given: Values, listener: StepListener | None
    ) -> dict[str, Any]:
        """Runs the remaining steps, given the values computed so far."""
        values, pending = self._literals | given, deque(steps)
        while pending:
            step = pending.popleft()
            if isinstance(step, HostStep):
                self._host.node(step.op, values)
            elif replacement := self._run_or_split(step, values):
                pending.extendleft(reversed(replacement))
                continue
            if listener is not None:
                listener(step, values)
        return {name: as_output(values[value]) for name, value in self._outputs.items()}

    @property
    def computed_by(self) -> ComputedBy:
        """C or Python, for the steps that have run."""
        with self._lock:
            parts = [self._parts[step] for step in self.steps if isinstance(step, Segment)]
        return reduce(or_, (part.computed_by for part in parts), self._host.computed_by)

    def recompute(self, step: HostStep, values: Values) -> None:
        """Computes a node again."""
        self._host.node(step.op, dict(values))

    def role(self, segment: Segment) -> Role:
        """The role of a segment in the model."""
        return self._parts[segment].role

    def _run_or_split(self, segment: Segment, values: Values) -> list[Step]:
        """Runs a segment, or returns the steps that replace it."""
        part = self._parts[segment]
        if part.has_many_signatures or segment in self._splits:
            replacement = self._split_off_changing(segment)
            if replacement:
                return replacement
        try:
            if part.role.repeated or segment.deciding:
                values |= self._run_segment(segment, part, values)
            else:
                values |= part.run(values, None)
        except NeedsHostError as error:
            return self._split(segment, error)
        return []

    def _run_segment(self, segment: Segment, part: LazyProgram, values: Values) -> Values:
        """
        Runs a segment that is specialised to values or may be interpreted; returns its outputs.
        """

        def interpreted() -> Values:
            again = dict(values)
            for op in segment.nodes:
                self._host.node(op, again)
            return again

        able = part.role.repeated and self._host.computes(*segment.nodes)
        found = part.run(values, interpreted if able else None)
        if segment.deciding:
            self._count_structures(segment, values)
        return found

    # splitting of segments

    def _number(self, steps: list[Step]) -> None:
        """Prepares segments for compilation; each has random streams of its own."""
        for step in steps:
            number = next(self._factory.numbers)
            if isinstance(step, Segment):
                role = Role(number, step.known, self._factory.repeated, whole=False)
                self._parts[step] = LazyProgram(step, role, self._factory)

    def _split(self, segment: Segment, reason: NeedsHostError) -> list[Step]:
        """The steps that replace a segment; raises `reason` again if it cannot be split."""
        with self._lock:
            if segment not in self._splits:
                assert isinstance(reason.node, OnnxOp), "lowering says where it was"
                op = maker_of(reason.node, segment.nodes)
                if op is None or not self._choose_fallback(op, reason):
                    raise reason
                self._replace(segment)
            return self._splits[segment]

    def _choose_fallback(self, op: OnnxOp, reason: NeedsHostError) -> bool:
        """Chooses another way to compute a node; False if there is none."""
        outermost = reason.inner is reason.node and op.op_type not in LOOPS
        few = is_branch(op) or not (self._factory.repeated and self._host.computes(op))
        if outermost and few and op not in self._deciding:
            self._deciding.add(op)
            return True
        if not isinstance(op, SchemaOp) and not self._host.computes(op):
            return False
        self._deciding.discard(op)
        self._hosted.add(op)
        return True

    def _count_structures(self, segment: Segment, values: Values) -> None:
        """Moves nodes to the host once too many values have determined their structure."""
        able = [op for op in segment.deciding if not is_branch(op) and self._host.computes(op)]
        if not able:
            return
        operands = {value for op in able for value in op.operands}
        with self._lock:
            seen = self._values.setdefault(segment, set())
            seen.add(self._parts[segment].structural_values(values, operands))
            if len(seen) > SPECIALISATIONS and segment not in self._splits:
                self._deciding.difference_update(able)
                self._hosted.update(able)
                self._replace(segment)

    def _split_off_changing(self, segment: Segment) -> list[Step]:
        """
        Steps that replace a segment with too many specialisations.

        The host computes nodes whose shapes change between iterations; empty without any.
        """
        part = self._parts[segment]
        with self._lock:
            if (
                part.has_many_signatures
                and segment not in self._splits
                and segment not in self._stable
            ):
                found = _changing_nodes(segment, part.shapes, self._host.store)
                changing = {op for op in found if self._host.computes(op)}
                self._hosted |= changing
                if changing:
                    self._replace(segment)
                else:
                    self._stable.add(segment)
            return self._splits.get(segment, [])

    def _replace(self, segment: Segment) -> None:
        steps = steps_of(self._model, segment.nodes, self._hosted, self._deciding)
        self._number(steps)
        self._splits[segment] = steps
        at = self.steps.index(segment)
        self.steps = [*self.steps[:at], *steps, *self.steps[at + 1 :]]
        self._chain = self._build_chain()

    def _build_chain(self) -> Chain | None:
        """The steps as a chain; None if the host computes a step, or may have to."""
        parts = []
        for step in self.steps:
            if not isinstance(step, Segment) or step.deciding or self._parts[step].role.repeated:
                return None
            parts.append(self._parts[step])
        graph = self._model.graph
        inputs = dict(zip(graph.input_names, graph.block.args, strict=True))
        return Chain.of(self.steps, parts, inputs, self._outputs)


def _changing_nodes(
    segment: Segment, shapes: Mapping[str, Shape | None], store: WeightStore
) -> set[OnnxOp]:
    """Nodes whose shapes are unknown even if every shape that never changed is fixed."""
    module = segment.module.clone()
    same = {name: shape for name, shape in shapes.items() if shape is not None}
    specialise(module, same, WeightStore(store))
    nodes = [op for op in model_of(module).graph.nodes if not is_literal(op)]
    return {
        op
        for op, copy in zip(segment.nodes, nodes, strict=True)
        if any(static_shape(value.type) is None for value in (*read_by(copy), *copy.results))
    }


def as_output(value: Any) -> Any:
    """Converts strings to NumPy strings, whatever type the host used."""
    if isinstance(value, list):
        return [as_output(one) for one in value]
    if isinstance(value, np.ndarray) and value.dtype.kind == "O" and _are_strings(value):
        return value.astype(np.str_)
    return value


def _are_strings(array: Array) -> bool:
    return all(isinstance(one, str) for one in array.reshape(-1))


class HostedExecutable(Executable):
    """A model with host steps, as an executable for one call."""

    def __init__(
        self,
        model: HostedModel,
        inputs: dict[str, tuple[DType, Shape]],
        known: Mapping[str, Array] | None = None,
    ) -> None:
        """`known` are inputs of the model that the executable does not list."""
        self._model = model
        self._known = known or {}
        self.inputs = inputs
        self.outputs = {}
        self.variables = {}

    def run(self, inputs: Mapping[str, Any], donate: Collection[str] = ()) -> dict[str, Any]:
        refuse_donations(donate, REASON_NOT_DONATED)
        return self._model.run({**inputs, **self._known})

    @property
    def computed_by(self) -> ComputedBy:
        return self._model.computed_by

    def read(self, variable: str) -> Array:
        raise _no_variable(variable)

    def write(self, variable: str, value: Array) -> None:
        raise _no_variable(variable)


def is_numeric(value: object) -> bool:
    """Whether a value is a numeric array."""
    return isinstance(value, np.ndarray) and value.dtype.kind not in "OUS"


def _no_variable(name: str) -> RunError:
    return RunError(
        f"the model has no variable {name!r}",
        hint="a model with host steps has none",
    )
