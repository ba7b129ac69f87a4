"""Selects the operands of a model that are quantized, and the values that share a scale."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TypeGuard

from xdsl.dialects.builtin import ModuleOp, TensorType, f32
from xdsl.ir import SSAValue

from popgraph.dialects.onnx import Graph, Initializer, OnnxOp, SchemaOp, model_of
from popgraph.dialects.onnx.types import dims
from popgraph.dialects.program import WeightStore
from popgraph.passes.onnx.infer_shapes import infer_shapes
from popgraph.support.errors import ArgumentError, ModelError
from popgraph.support.names import closest

ACTIVATION, WEIGHT, BIAS = "activation", "weight", "bias"
"""Kinds of operands: computed at run time; constant, int8 or narrower; constant, int32."""

LAYERS = ("Conv", "ConvTranspose", "MatMul", "Gemm")
"""Sums of products: they read int8 operands, and they decide what else is quantized."""
ARITHMETIC = ("Add", "Mul", "Sub", "AveragePool", "GlobalAveragePool", "Resize")
"""Operators that compute with quantized operands if their result is quantized as well."""
MOVEMENT = {
    "Concat": None,
    "MaxPool": 0,
    "Reshape": 0,
    "Transpose": 0,
    "Flatten": 0,
    "Squeeze": 0,
    "Unsqueeze": 0,
    "Slice": 0,
    "Split": 0,
    "Gather": 0,
    "Expand": 0,
    "Tile": 0,
    "DepthToSpace": 0,
    "SpaceToDepth": 0,
    "Identity": 0,
    "Dropout": 0,
}
"""
{operator: the operand that it moves; None: all of them}.

Rounding commutes with these operators, so the operand and the result share one scale.
"""
CLIPPING = ("Relu", "Clip")
"""Operators that stay in floats between a sum and its rounding, because kernels fuse them."""
OPERATORS = (*LAYERS, *ARITHMETIC, *MOVEMENT)
"""The operators with operands to quantize."""
DEFAULT = tuple(name for name in OPERATORS if name not in ("Mul", "Sub", "Resize"))
"""The operators that are quantized by default; products of activations lose too much."""
QUANTIZED = (
    "QuantizeLinear",
    "DequantizeLinear",
    "DynamicQuantizeLinear",
    "QLinearConv",
    "QLinearMatMul",
    "ConvInteger",
    "MatMulInteger",
    "QGemm",
    "MatMulNBits",
    "MatMulIntegerToFloat",
    "DynamicQuantizeMatMul",
    "QAttention",
)
"""Operators of models that are already quantized."""


@dataclass(frozen=True)
class Site:
    """An operand to quantize."""

    node: OnnxOp
    operand: int
    """The index in the node's list of inputs."""
    kind: str
    axis: int | None = None
    """The axis of a weight along which each element has a scale of its own; None: one scale."""

    @property
    def value(self) -> SSAValue:
        """The operand itself, before quantization."""
        found = self.node.input_values()[self.operand]
        assert found is not None, "a site is an operand that exists"
        return found


@dataclass(frozen=True)
class Selection:
    """The user's choice of operators and nodes."""

    operators: tuple[str, ...] = DEFAULT
    nodes: tuple[str, ...] = ()
    """Patterns (`fnmatch`) of the names of nodes to quantize; empty: all nodes."""
    exclude: tuple[str, ...] = ()
    """Patterns of the names of nodes to leave unchanged."""

    @staticmethod
    def of(
        operators: Iterable[str] | str | None,
        nodes: Iterable[str] | str | None,
        exclude: Iterable[str] | str | None,
    ) -> Selection:
        """From Python arguments; a single name may be a string, and None is the default."""
        wanted = DEFAULT if operators is None else _texts(operators)
        for name in wanted:
            if name not in OPERATORS:
                close = closest(name, OPERATORS)
                raise ArgumentError(
                    f"operator {name!r} cannot be quantized",
                    "op_types_to_quantize",
                    f"did you mean {close!r}?" if close else f"choose from {', '.join(OPERATORS)}",
                )
        return Selection(wanted, _texts(nodes or ()), _texts(exclude or ()))

    def check(self, graph: Graph) -> None:
        """ModelError if a pattern matches no node of the graph."""
        known = [name for op in graph.nodes for name in names_of(op)]
        for option, patterns in (
            ("nodes_to_quantize", self.nodes),
            ("nodes_to_exclude", self.exclude),
        ):
            for pattern in patterns:
                if not any(fnmatchcase(name, pattern) for name in known):
                    close = closest(pattern, known)
                    listed = ", ".join(label(op) for op in [*graph.nodes][:8])
                    raise ModelError(
                        f"the model has no node {pattern!r}",
                        option,
                        f"did you mean {close!r}?" if close else f"its first nodes are {listed}",
                    )

    def includes(self, op: OnnxOp) -> bool:
        """Whether a node may be quantized."""
        if not is_standard(op, *self.operators):
            return False
        names = names_of(op)
        wanted = not self.nodes or _matches(names, self.nodes)
        return wanted and not _matches(names, self.exclude)


def _texts(given: Iterable[str] | str) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def _matches(names: Sequence[str], patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for name in names for pattern in patterns)


def names_of(op: OnnxOp) -> list[str]:
    """The names by which users select a node: its own and those of its outputs."""
    return [name for name in (op.node_name, *op.output_names) if name]


def label(op: OnnxOp) -> str:
    """The first name of a node."""
    return next(iter(names_of(op)), op.op_type)


def is_real(value: SSAValue | None) -> bool:
    """Whether a value is an f32 tensor."""
    return (
        value is not None and isinstance(value.type, TensorType) and value.type.element_type == f32
    )


def is_constant(value: SSAValue) -> bool:
    """Whether a value is an initializer, a Constant, or a movement of constants alone."""
    pending = [value]
    while pending:
        owner = pending.pop().owner
        if isinstance(owner, Initializer) or is_standard(owner, "Constant"):
            continue
        if not is_standard(owner, *MOVEMENT):
            return False
        pending += owner.operands
    return True


def is_standard(op: object, *names: str) -> TypeGuard[SchemaOp]:
    """Whether this is a node of one of these standard operators."""
    return isinstance(op, SchemaOp) and not op.domain and op.op_type in names


def check_unquantized(graph: Graph) -> None:
    """ModelError if a model is already quantized."""
    for op in graph.walk():
        if isinstance(op, OnnxOp) and op.op_type in QUANTIZED:
            raise ModelError(
                "the model is already quantized", op.where(), "pass the model in floats"
            )


@dataclass
class Sites:
    """
    The operands to quantize.

    Layers of `LAYERS` are always quantized. The others are quantized if a quantized operand reads
    their result: then no float tensor lies between two layers.
    """

    graph: Graph
    selection: Selection
    found: dict[tuple[OnnxOp, int], Site] = field(default_factory=dict)
    _shared: dict[SSAValue, SSAValue] = field(default_factory=dict)
    """Union-find forest of the values that share a scale."""

    @staticmethod
    def of(graph: Graph, selection: Selection | None = None) -> Sites:
        """The sites of a graph whose types are inferred."""
        selection = selection or Selection()
        selection.check(graph)
        made = Sites(graph, selection)
        for op in graph.nodes:
            if op.op_type in LAYERS and selection.includes(op):
                made._add_layer(op)
        return made

    def __iter__(self) -> Iterator[Site]:
        """The sites, in the order of the nodes."""
        for op in self.graph.nodes:
            for operand in range(len(op.input_values())):
                if (op, operand) in self.found:
                    yield self.found[op, operand]

    def of_kind(self, kind: str) -> list[Site]:
        """The sites of a kind, in the order of the nodes."""
        return [site for site in self if site.kind == kind]

    def bias_of(self, layer: OnnxOp) -> Site | None:
        """The bias of a layer: its own, or a constant vector that is added to a MatMul alone."""
        if layer.op_type != "MatMul":
            return self.found.get((layer, 2))
        result, weight = layer.results[0], layer.operands[1]
        reader, sizes = self._only_reader(result), dims(weight.type) or ()
        if not is_standard(reader, "Add") or len(sizes) < 2 or not is_constant(weight):
            return None
        for operand, value in enumerate(reader.operands):
            if value is not result and is_constant(value) and dims(value.type) == sizes[-1:]:
                return Site(reader, operand, BIAS, 0)
        return None

    def results(self) -> list[SSAValue]:
        """
        The results of convolutions, clipped if nothing reads them before, for all readers.

        Runtimes that compute convolutions from integers to integers only, such as onnxruntime,
        need them rounded.
        """
        found = list[SSAValue]()
        for op in self.layers():
            if op.op_type == "Conv":
                value = op.results[0]
                while (reader := self._only_reader(value)) and reader.op_type in CLIPPING:
                    value = reader.results[0]
                found.append(value)
        return found

    def _only_reader(self, value: SSAValue) -> OnnxOp | None:
        """The node that reads a value, if there is one, in the main graph."""
        reader = value.get_user_of_unique_use()
        inside = isinstance(reader, OnnxOp) and reader.parent is self.graph.block
        return reader if inside else None  # type: ignore[return-value]

    def layers(self) -> list[OnnxOp]:
        """The quantized nodes of `LAYERS`, in order."""
        return [op for op in dict.fromkeys(site.node for site in self) if op.op_type in LAYERS]

    def scale_of(self, value: SSAValue) -> SSAValue:
        """The representative of all values that share a scale with this one."""
        while (found := self._shared.get(value, value)) is not value:
            value = found
        return value

    def _add_layer(self, op: OnnxOp) -> None:
        first, second, *rest = op.input_values()
        if not (is_real(first) and is_real(second)):
            return
        assert first is not None and second is not None
        if is_constant(first) and (op.op_type != "MatMul" or is_constant(second)):
            return
        for operand, value in enumerate((first, second)):
            if is_constant(value):
                self.found[op, operand] = Site(op, operand, WEIGHT, channel_axis(op, operand))
            else:
                self._add(op, operand)
        bias = rest[0] if rest else None
        if bias is not None and is_constant(second) and _is_added(op, bias):
            self.found[op, 2] = Site(op, 2, BIAS, 0)

    def _add(self, op: OnnxOp, operand: int) -> None:
        """Adds an activation, and the nodes before it that can compute on quantized operands."""
        pending = [(op, operand)]
        while pending:
            key = pending.pop()
            if key in self.found:
                continue
            self.found[key] = site = Site(*key, ACTIVATION)
            before = self._quantizable_source(site.value)
            if before is None:
                continue
            moved = _moved(before)
            pending += [(before, number) for number in moved]
            if before.op_type in MOVEMENT:
                for number in moved:
                    for result in before.results:
                        self._share(before.input_values()[number], result)

    def _share(self, one: SSAValue | None, other: SSAValue) -> None:
        assert one is not None, "only operands that exist are moved"
        first, second = self.scale_of(one), self.scale_of(other)
        if first is not second:
            self._shared[second] = first

    def _quantizable_source(self, value: SSAValue) -> OnnxOp | None:
        """The node that computes a value, perhaps clipped, if it can have quantized operands."""
        op, clipped = value.owner, False
        while is_standard(op, *CLIPPING):
            op, clipped = op.operands[0].owner, True
        if not isinstance(op, OnnxOp) or not self.selection.includes(op) or op.op_type in LAYERS:
            return None
        if clipped and op.op_type in MOVEMENT:
            return None  # Clipped afterwards, the result has a range of its own.
        operands = [op.input_values()[number] for number in _moved(op)]
        fits = all(one is not None and is_real(one) and not is_constant(one) for one in operands)
        return op if fits and operands and all(map(is_real, op.results)) else None


def _moved(op: OnnxOp) -> list[int]:
    """The operands of a node of `ARITHMETIC` or `MOVEMENT` that are quantized."""
    count = len(op.input_values())
    if op.op_type in ("Add", "Mul", "Sub"):
        return [0, 1]
    if op.op_type in MOVEMENT and MOVEMENT[op.op_type] is None:
        return [*range(count)]
    return [0]


def _is_added(op: OnnxOp, bias: SSAValue) -> bool:
    """Whether a bias is a constant vector that is added to the plain sums of products."""
    if not (is_real(bias) and is_constant(bias)) or len(dims(bias.type) or ()) != 1:
        return False
    numbers = op.attribute_values()
    return op.op_type != "Gemm" or (numbers["alpha"], numbers["beta"]) == (1, 1)


def channel_axis(op: OnnxOp, operand: int) -> int | None:
    """The axis of a weight that is an axis of the result and is not summed; None if unknown."""
    value = op.input_values()[operand]
    sizes = None if value is None else dims(value.type)
    if sizes is None or len(sizes) < 2:
        return None
    match op.op_type:
        case "Conv":
            return 0
        case "ConvTranspose":
            # Channels of the groups are not contiguous along one axis of the weight.
            return 1 if op.attribute_values()["group"] == 1 else None
        case "Gemm":
            transposed = op.attribute_values()["transB" if operand else "transA"]
            return operand if not transposed else 1 - operand
        case "MatMul":
            return len(sizes) - 1 if operand else len(sizes) - 2
    return None


def sites_of(module: ModuleOp, store: WeightStore, selection: Selection | None = None) -> Sites:
    """The sites of a module of the onnx level, whose types are inferred first."""
    infer_shapes(module, store)
    return Sites.of(model_of(module).graph, selection)
