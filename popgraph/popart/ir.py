"""`getIr` and `_serializeIr`: the graphcore module of a session in the form of PopART's IR."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, SSAValue

from popgraph.builder.opset.enums import RecomputeType
from popgraph.dialects.graphcore.base import GraphcoreOp, dtype_of, shape_of
from popgraph.dialects.onnx import OnnxOp, value_name
from popgraph.dialects.onnx.annotations import IPU, NOTE, PHASE, PRIORITY, STAGE, all_attributes
from popgraph.dialects.onnx.op import to_python
from popgraph.dialects.program import ConstantOp, GraphOp, ReturnOp, UpdateOp, VariableOp, YieldOp
from popgraph.engine.stages import Stages
from popgraph.passes.analysis.graph import only_graph
from popgraph.passes.analysis.notes import GRADIENT as OF_GRADIENT
from popgraph.passes.analysis.notes import notes
from popgraph.passes.graphcore.training.variables import UPDATED
from popgraph.passes.options import GRADIENT
from popgraph.popart.api.tensorinfo import TensorInfo
from popgraph.popart.model.model import SessionModel
from popgraph.support.names import hint

NODE = "node"
"""Location note of an operation: the index of the model's node that it computes."""

RESTORED = "Restored___"
"""Prefix of an activation that a pipeline stashes for the backward pass."""

MAIN = "maingraph"
"""The default name of the main graph."""
_UNNAMED = "BuilderGraph"
"""Prefix of names that builders generate."""

_ONE_OPERATOR = """
    Abs Asin Atan AveragePool BatchNormalization Clip Cos Ctc CumSum Dropout Elu Erf Exp Expand
    Expm1 Gather Gelu GeluErf GlobalAveragePool GlobalMaxPool GroupNormalization GRU HardSigmoid
    IdentityLoss InstanceNormalization L1 LRN LSTM LeakyRelu Log Log1p LogSoftmax MaxPool Neg Nll
    OneHot Pad RNN Reciprocal ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean
    ReduceMedian ReduceMin ReduceProd ReduceSum ReduceSumSquare Relu Reshape Resize Reverse RoiAlign
    Scale Selu ShapedDropout Shrink Sigmoid Sin Sinh Softmax Sqrt Subsample Swish Tanh
    ThresholdedRelu Tile TopK Transpose
"""
_GRADIENTS = {type_: f"{type_}Grad" for type_ in _ONE_OPERATOR.split()} | {
    "Flatten": "ReshapeGrad",
    "ScatterReduce": "ScatterReduceGradOp",
    "Softplus": "SoftPlusGrad",
    "Softsign": "SoftSignGrad",
}
"""Gradients that are a single operator in PopART; all others appear as separate operations."""

_TYPES = {
    "graphcore.broadcast": "Expand",
    "graphcore.conv_input_grad": "ConvDataGrad",
    "graphcore.conv_weight_grad": "ConvWeightsGrad",
    "graphcore.nll_loss": "Nll",
    "graphcore.nll_loss_grad": "NllGrad",
    "graphcore.l1_loss": "L1",
    "pg.update": "CopyVarUpdate",
}
"""Operations whose PopART name is not the CamelCase of their own."""

_OF_KNOWN_SHAPE = {
    "RandomNormalLike": "RandomNormal",
    "RandomUniformLike": "RandomUniform",
}
"""{operator that reads its shape from a tensor: the operator with a static shape}."""

_NAMES = {
    "reduction": "reduction_type",
    "ignoreIndex": "ignore_index",
    "inputIsLogProbability": "input_is_log_probability",
}
"""{attribute in models: attribute in PopART's IR}."""

_REDUCTIONS = {"Sum": "0", "Mean": "1", "None": "2"}


def gradient_types() -> set[str]:
    """The operator names of gradients."""
    return {*_GRADIENTS.values(), "ConvDataGrad", "ConvWeightsGrad", "GatherGrad"}


@dataclass(frozen=True)
class Operator:
    """A node of the model, its gradient, or one operation of an update."""

    type: str
    name: str
    inputs: Mapping[int, str]
    outputs: Mapping[int, str]
    attributes: Mapping[str, str]
    is_forward: bool
    """False for gradients and updates."""


@dataclass(frozen=True)
class _Group:
    """Consecutive operations that PopART shows as one operator."""

    operations: Sequence[Operation]
    node: OnnxOp | None
    gradient: bool
    recompute: RecomputeType

    @property
    def type(self) -> str:
        if self.node is None:
            return _type(self.operations[0])
        if not self.gradient:
            return _OF_KNOWN_SHAPE.get(self.node.op_type, self.node.op_type)
        return _GRADIENTS.get(self.node.op_type) or _type(self.operations[0])

    def reads(self) -> Iterator[SSAValue]:
        """The operands defined outside the group, except unnamed constants."""
        for op in self.operations:
            for value in op.operands:
                owner = value.owner
                inside = isinstance(owner, Operation) and owner in self.operations
                plain = isinstance(owner, ConstantOp) and value.name_hint is None
                if not inside and not plain:
                    yield value

    def gives(self) -> Iterator[SSAValue]:
        """The results with uses outside the group."""
        for op in self.operations:
            for value in op.results:
                if any(use.operation not in self.operations for use in value.uses):
                    yield value


def _groups(block: Block, nodes: Sequence[OnnxOp]) -> Iterator[_Group]:
    """The operators of a block; a forward group that occurs again is marked as recomputed."""
    shown = [op for op in block.ops if not isinstance(op, _PLAIN)]
    rows = [(key, list(ops)) for key, ops in groupby(shown, lambda op: _key(op, nodes))]
    times = Counter(key for key, _ in rows)
    seen = set[_Key]()
    for key, ops in rows:
        number, gradient, _ = key
        node = None if number is None else nodes[number]
        if node is None:
            yield _Group(ops, None, False, RecomputeType.Undefined)
        elif gradient:
            yield _Group(ops, node, True, RecomputeType.Checkpoint)
        else:
            again = RecomputeType.Recomputed if key in seen else RecomputeType.Recompute
            yield _Group(ops, node, False, again if times[key] > 1 else RecomputeType.Undefined)
        seen.add(key)


_Key = tuple[int | None, bool, Operation | None]
"""(node index, whether it is the gradient, the operation if it is a group of its own)."""

_PLAIN = (ConstantOp, VariableOp, ReturnOp, YieldOp)


def _key(op: Operation, nodes: Sequence[OnnxOp]) -> _Key:
    number, gradient = node_of(op), is_gradient(op)
    alone = number is None or (gradient and nodes[number].op_type not in _GRADIENTS)
    return number, gradient, op if alone else None


def _type(op: Operation) -> str:
    """PopART's or ONNX's name of one operation."""
    if op.name in _TYPES:
        return _TYPES[op.name]
    named = op.ONNX.split() if isinstance(op, GraphcoreOp) else []
    if named:
        return named[0].rpartition(".")[2]
    return "".join(word.capitalize() for word in op.name.partition(".")[2].split("_"))


@dataclass(frozen=True)
class Placement:
    """The IPU and pipeline stage of each tensor."""

    ipus: Mapping[str, int] = field(default_factory=dict)
    """{tensor: IPU}, where assigned."""
    stages: Stages | None = None
    accumulates: bool = False
    """Whether gradients accumulate over several micro-batches."""

    def attributes(self, outputs: Collection[str], *, forward: bool) -> Iterator[tuple[str, str]]:
        """The IPU and pipeline stage of a node with these outputs, or of its gradient."""
        ipu = next((self.ipus[id] for id in outputs if id in self.ipus), None)
        if ipu is not None:
            yield IPU, str(ipu)
        if self.stages is None:
            return
        known = self.stages.stage_of_tensor if forward else self.stages.stage_of_gradient
        stage = next((known[id] for id in outputs if id in known), None)
        if stage is not None:
            yield STAGE, str(stage)


class _Names:
    """Names of SSA values: names from the model and of states, or generated names."""

    def __init__(
        self, graph: GraphOp, nodes: Sequence[OnnxOp], literals: Sequence[str], loss: str
    ) -> None:
        self._nodes, self._loss = nodes, loss
        self._literals = [(name, plain) for name in literals if (plain := hint(name)) is not None]
        self._known: dict[SSAValue, str] = {}
        for op in graph.variables():
            self._known[op.result] = op.variable.text
        for name, value in graph.inputs.items():
            self._known.setdefault(value, name)
        taken = set(self._known.values())
        for name, value in graph.outputs.items():
            if name not in taken:
                self._known.setdefault(value, name)
        self._made = 0

    def of(self, value: SSAValue) -> str:
        if value not in self._known:
            self._known[value] = self._found(value) or self._new(value)
        return self._known[value]

    def _found(self, value: SSAValue) -> str | None:
        """The model's tensor, or its gradient, whose name matches the value's hint."""
        op = value.owner
        number = None if isinstance(op, Block) else node_of(op)
        if value.name_hint is None:
            return None
        if isinstance(op, ConstantOp) and number is None:
            for name, plain in self._literals:
                if name not in self._known.values() and _is_hint(plain, value):
                    return name
        if number is None:
            seed = GRADIENT + self._loss
            return seed if _is_hint(hint(seed), value) else None
        node, prefix = self._nodes[number], ""
        names: Iterable[str] = node.output_names
        if isinstance(op, Operation) and is_gradient(op):
            names, prefix = names_read(node), GRADIENT
        named = {prefix + name: hint(prefix + name) for name in names if name}
        return next((name for name, plain in named.items() if _is_hint(plain, value)), None)

    def _new(self, value: SSAValue) -> str:
        """A fresh name derived from the node's output or the value's hint."""
        self._made += 1
        op = value.owner
        number = None if isinstance(op, Block) else node_of(op)
        outputs = [] if number is None else [one for one in self._nodes[number].output_names if one]
        stem = outputs[0] if outputs else value.name_hint or "tensor"
        if outputs and isinstance(op, Operation) and is_gradient(op):
            stem = GRADIENT + stem
        return f"{stem}__t{self._made}"


def _is_hint(plain: str | None, value: SSAValue) -> bool:
    """Whether a value has this name in IR text, up to a numeric suffix."""
    return plain is not None and _stem(plain) == _stem(value.name_hint or "")


def _stem(name: str) -> str:
    return re.sub(r"(_\d+)+$", "", name)


def node_of(op: Operation) -> int | None:
    """The index of the model's node that an operation computes."""
    for text in notes(op.location):
        kind, _, number = text.partition(" ")
        if kind == NODE:
            return int(number)
    return None


def is_gradient(op: Operation) -> bool:
    return OF_GRADIENT in notes(op.location)


class Ir:
    """
    The module of a session as PopART's IR: the operators of each graph, in schedule order.

    The operations of one node form one operator; so do the operations of its gradient where PopART
    has a single operator for it. Tensors have the names of the model, `Gradient___x`, or names of
    states.
    This is the compiled module, so operators that only PopART's patterns create are absent.
    """

    def __init__(
        self, module: ModuleOp, model: SessionModel, nodes: Sequence[OnnxOp], placement: Placement
    ) -> None:
        graph, self._module = only_graph(module), module
        self._model, self._nodes, self._placement = model, nodes, placement
        literals = [op.value_name.text for op in model.graph.initializers]
        self._names = _Names(graph, nodes, literals, model.final_loss or "")
        name = model.graph.graph_name.text
        self._graphs: dict[str, list[Operator]] = {}
        self._bodies: dict[str, tuple[Sequence[str], Sequence[str]]] = {}
        self._infos: dict[str, TensorInfo] = {}
        self._read(
            MAIN if not name or name.startswith(_UNNAMED) else name, graph.block, [*graph.outputs]
        )

    def graphNames(self) -> list[str]:
        """The names of all graphs, the main graph first."""
        return list(self._graphs)

    def operators(self, graph: str) -> Sequence[Operator]:
        return self._graphs[graph]

    def body(self, graph: str) -> tuple[Sequence[str], Sequence[str]]:
        """(inputs, outputs) of a graph."""
        return self._bodies[graph]

    def infos(self) -> Mapping[str, TensorInfo]:
        """Element type and shape of every operand and result."""
        return self._infos

    def text(self) -> str:
        """The module as IR text, which can be parsed and run."""
        return str(self._module)

    def serialised(self) -> str:
        """All graphs as PopART's JSON, where every value is a string."""
        shown = {name: [self._shown(op) for op in ops] for name, ops in self._graphs.items()}
        return json.dumps(shown)

    def _shown(self, op: Operator) -> dict[str, object]:
        outputs = [{"name": id, "index": str(at)} for at, id in op.outputs.items()]
        inputs = [
            {
                "name": id,
                "shape": _text(self._infos[id].shape()),
                "type": self._infos[id].data_type(),
                "index": str(at),
            }
            for at, id in op.inputs.items()
        ]
        return {
            "type": op.type,
            "name": op.name,
            "inputs": inputs,
            "outputs": outputs,
            "attributes": dict(op.attributes),
        }

    def _read(self, name: str, block: Block, results: Sequence[str]) -> None:
        """Adds a graph, then recursively the graphs that its operators call."""
        found = self._graphs[name] = []
        self._bodies[name] = [self._names.of(one) for one in block.args], results
        for group in _groups(block, self._nodes):
            found.append(self._operator(group, name))
        for group in _groups(block, self._nodes):
            for graph, region in self._called(group):
                if graph not in self._graphs:
                    last = region.last_op
                    given = [] if last is None else [self._names.of(one) for one in last.operands]
                    self._read(graph, region, given)

    def _called(self, group: _Group) -> Iterator[tuple[str, Block]]:
        """(graph name, block) of each subgraph that an operator calls."""
        names = [name for _, name in self._called_names(group)]
        for op in group.operations:
            if len(op.regions) == len(names):
                yield from zip(names, (region.block for region in op.regions), strict=True)

    @staticmethod
    def _called_names(group: _Group) -> Iterator[tuple[str, str]]:
        """(attribute name in PopART, graph name) of each subgraph of a node."""
        graphs = {} if group.node is None or group.gradient else group.node.graphs()
        for attribute, many in sorted(graphs.items(), reverse=True):  # "then" is the first region
            for one in many:
                yield attribute if len(graphs) > 1 else "callee", one.graph_name.text

    def _operator(self, group: _Group, graph: str) -> Operator:
        inputs = self._tensors(dict.fromkeys(group.reads()))
        outputs = self._tensors(dict.fromkeys(group.gives()))
        update = group.operations[0]
        if isinstance(update, UpdateOp):
            return self._update(update, dict(self._attributes(group, graph)))
        for value, id in (*inputs.items(), *outputs.items()):
            self._infos[id] = TensorInfo(dtype_of(value).popart, shape_of(value))
        return Operator(
            group.type,
            self._name(group),
            self._indexed(group, inputs.values()),
            dict(enumerate(outputs.values())),
            dict(self._attributes(group, graph)),
            group.node is not None and not group.gradient,
        )

    def _update(self, op: UpdateOp, attributes: Mapping[str, str]) -> Operator:
        """The assignment of a variable's new value."""
        name, value = op.variable.text, self._names.of(op.value)
        info = TensorInfo(dtype_of(op.value).popart, shape_of(op.value))
        self._infos |= dict.fromkeys((name, value, UPDATED + name), info)
        ends = {0: name, 1: value}, {0: UPDATED + name}
        return Operator(_type(op), "", *ends, attributes, is_forward=False)

    def _name(self, group: _Group) -> str:
        return "" if group.node is None else group.node.node_name

    def _indexed(self, group: _Group, inputs: Iterable[str]) -> dict[int, str]:
        """{input index: tensor}: operands of the model's node keep their index, others follow."""
        names = [] if group.node is None or group.gradient else names_read(group.node)
        found = {names.index(id): id for id in inputs if id in names}
        rest = [id for id in inputs if id not in names]
        return dict(sorted(found.items())) | dict(enumerate(rest, max(found, default=-1) + 1))

    def _tensors(self, values: Iterable[SSAValue]) -> dict[SSAValue, str]:
        return {value: self._names.of(value) for value in values}

    def _context(self, group: _Group) -> str:
        outer = self._placement.accumulates and group.node is None
        return "AccumulateOuterFragment" if outer else "Normal"

    def _attributes(self, group: _Group, graph: str) -> Iterator[tuple[str, str]]:
        node, told = group.node, dict[str, object]()
        if node is not None:
            given = all_attributes(node, self._model.weights)
            told = {name: to_python(value) for name, value in given.items()}
            outputs = [id for id in node.output_names if id]
            yield from self._placement.attributes(outputs, forward=not group.gradient)
        yield "recompute", "YES" if group.recompute is RecomputeType.Recompute else "NO"
        yield "recomputetype", group.recompute.name
        yield "tileSet", "0"
        yield "scope", "" if graph == next(iter(self._graphs)) else graph
        yield "__execution_context", self._context(group)
        for name, value in told.items() if not group.gradient else ():
            if not name.startswith(NOTE):
                yield _NAMES.get(name, name), _reduction(name, value)
        if PHASE in told:
            yield PHASE, _text(told[PHASE])
        yield from self._called_names(group)
        yield "schedulePriority", f"{float(str(told.get(PRIORITY, 0))):.6f}"


def names_read(node: OnnxOp) -> list[str]:
    """The operand names of a node of the model, "" for an omitted one."""
    return [value_name(one) if one is not None else "" for one in node.input_values()]


def _reduction(name: str, value: object) -> str:
    return _REDUCTIONS.get(str(value), _text(value)) if name == "reduction" else _text(value)


def _text(value: object) -> str:
    """A value in the format of C++ streams."""
    match value:
        case bool():
            return "true" if value else "false"
        case float():
            return f"{value:.6f}"
        case bytes():
            return value.decode(errors="replace")
        case list() | tuple():
            shown = (f"{one:g}" if isinstance(one, float) else str(one) for one in value)
            return f"[{' '.join(shown)}]"
    return str(value)
