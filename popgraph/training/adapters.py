"""LoRA adapters in a graph: adds them to products, finds them, and merges them into weights."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.ir import Operation, SSAValue

from popgraph.dialects import element_types
from popgraph.dialects.onnx import Graph, Initializer, OnnxOp
from popgraph.dialects.onnx.attributes import TensorAttr
from popgraph.dialects.onnx.containers import value_name
from popgraph.dialects.onnx.outputs import drop_unused
from popgraph.dialects.onnx.tensorproto import from_value
from popgraph.dialects.onnx.types import NamesAttr, static_shape
from popgraph.dialects.onnx.weight_names import weight_name, weights_by_name
from popgraph.dialects.program import WeightStore
from popgraph.dialects.value_types import set_type
from popgraph.passes.onnx.infer_shapes import infer_shapes
from popgraph.quantization.editing import MICROSOFT, Editor
from popgraph.quantization.settings import NBITS
from popgraph.quantization.sites import is_constant, is_standard, names_of
from popgraph.support import dtypes
from popgraph.support.arrays import Array
from popgraph.support.dtypes import DType
from popgraph.support.errors import ModelError
from popgraph.support.shapes import Shape, prod
from popgraph.training.roles import adapter_names, is_float, name_of_a, name_of_b, shape_of

ADAPTED = "it has one already; merge_lora(model) merges it into the weight"
"""The reason why a weight with an adapter gets no second one."""
OLDEST_OPSET = 7
"""The first operator set whose Add and Mul broadcast by their shapes."""
RATIO_IS_INPUT = 12
"""The first operator set in which the ratio of Dropout is an input."""
MOVED = ("Identity", "Transpose")
"""Operators between a weight and its product."""
DECODED = ("Cast", "DequantizeLinear", "Identity", "Reshape", "Sub", "Transpose")
"""Operators that compute a weight from its stored form."""
ENDS = re.compile("(_quantized|/stored)$")
"""The ends that `popgraph.quantize` and texts add to the names of weights in fewer bits."""


@dataclass(frozen=True)
class Form:
    """The sizes of a product with a weight, and the layout of the weight."""

    inputs: int
    outputs: int
    kernel: Shape = ()
    """The window of a convolution; () for a matrix product."""
    is_transposed: bool = False
    """Whether a matrix is stored as [inputs, outputs]."""

    def shapes(self, rank: int) -> tuple[Shape, Shape]:
        """The shapes of A and B, as PEFT stores them."""
        ones = (1,) * len(self.kernel)
        return (rank, self.inputs, *self.kernel), (self.outputs, rank, *ones)

    def values(self, rank: int) -> int:
        """The number of values of an adapter."""
        return sum(map(prod, self.shapes(rank)))

    def delta(self, a: Array, b: Array) -> Array:
        """B A in the layout of the weight, in f64."""
        wide = b.reshape(len(b), -1).astype(np.float64) @ a.reshape(len(a), -1).astype(np.float64)
        return wide.T if self.is_transposed else wide.reshape(len(b), *a.shape[1:])


@dataclass(frozen=True)
class Product:
    """A node that multiplies an activation with a stored weight."""

    op: OnnxOp
    root: SSAValue
    """The weight: an initializer, or a value that is decoded from initializers."""
    form: Form

    @staticmethod
    def of(op: Operation) -> Product | None:
        """The product that a node computes; None for another node. Types are inferred."""
        if isinstance(op, OnnxOp) and (op.domain, op.op_type) == (MICROSOFT, NBITS):
            sizes = op.attribute_values()
            return Product(op, op.operands[1], Form(int(sizes["K"]), int(sizes["N"])))  # type: ignore[call-overload]
        if not is_standard(op, "MatMul", "Gemm", "Conv") or is_constant(op.operands[0]):
            return None
        root, is_turned = _root(op.operands[1])
        shape = static_shape(op.operands[1].type)
        if shape is None or not _is_stored(root):
            return None
        attributes = op.attribute_values()
        if op.op_type == "Conv":
            fits = attributes["group"] == 1
            return Product(op, root, Form(shape[1], shape[0], shape[2:])) if fits else None
        if len(shape) != 2 or attributes.get("transA") or attributes.get("alpha", 1) != 1:
            return None
        is_transposed = not attributes.get("transB")
        inputs, outputs = shape if is_transposed else shape[::-1]
        return Product(op, root, Form(inputs, outputs, is_transposed=is_transposed != is_turned))

    @property
    def name(self) -> str:
        """The name of the weight, in whatever form it is stored."""
        value = self.root
        while is_standard(owner := value.owner, *DECODED):
            value = owner.operands[0]
        name = weight_name(owner) if isinstance(owner, Initializer) else value_name(value)
        return ENDS.sub("", name)

    @property
    def dtype(self) -> DType | None:
        """The element type of the activation, if it is a known float."""
        type_ = self.op.operands[0].type
        if not isinstance(type_, TensorType) or not element_types.is_number(type_.element_type):
            return None
        found = element_types.from_ir(type_.element_type)
        return found if found.is_float else None


def _root(value: SSAValue) -> tuple[SSAValue, bool]:
    """The value before movements, and whether they transpose it."""
    is_turned = False
    while is_standard(owner := value.owner, *MOVED):
        if owner.op_type == "Transpose":
            if len(static_shape(value.type) or ()) != 2:
                break
            is_turned = not is_turned
        value = owner.operands[0]
    return value, is_turned


def _is_stored(value: SSAValue) -> bool:
    """Whether a value is an initializer, a Constant, or decoded from these alone."""
    owner = value.owner
    if isinstance(owner, Initializer) or is_standard(owner, "Constant"):
        return True
    return is_standard(owner, *DECODED) and all(map(_is_stored, owner.operands))


@dataclass(frozen=True)
class Candidate:
    """A weight that can have an adapter, with all of its products."""

    name: str
    products: tuple[Product, ...]

    @property
    def form(self) -> Form:
        return self.products[0].form

    @property
    def labels(self) -> list[str]:
        """The names that select the weight: its own, and those of the nodes that read it."""
        return [self.name, *(name for one in self.products for name in names_of(one.op))]

    @property
    def dtype(self) -> DType:
        """The element type of the adapter: f64 for f64, and f32 for narrower floats."""
        found = self.products[0].dtype
        return found if found is not None and found.name == "f64" else dtypes.BY_NAME["f32"]


def candidates(graph: Graph) -> tuple[dict[str, Candidate], dict[str, str]]:
    """
    The weights that can have adapters, and the reasons why others cannot, by name.

    The types of the graph are inferred. Weights of adapters are in neither.
    """
    products: dict[SSAValue, list[Product]] = {}
    for op in graph.nodes:
        product = Product.of(op)
        if product is not None:
            products.setdefault(product.root, []).append(product)
    weights = weights_by_name(graph)
    hidden = adapter_names(weights)
    refused = {
        name: _reason(one)
        for name, one in weights.items()
        if one.result not in products and name not in hidden
    }
    held: dict[str, Candidate] = {}
    for root, found in products.items():
        name = found[0].name
        if name in hidden:
            continue
        other = _other_reader(root, {one.op for one in found})
        if name_of_a(name) in hidden:
            refused[name] = ADAPTED
        elif other is not None:
            refused[name] = f"{other} reads it, too"
        elif len({one.form for one in found}) > 1:
            refused[name] = "one product reads it, and another its transpose"
        elif any(one.dtype is None for one in found):
            refused[name] = "the type of its product is unknown"
        else:
            held[name] = Candidate(name, tuple(found))
    return held, {name: why for name, why in refused.items() if name not in held}


def _reason(initializer: Initializer) -> str:
    """Why an initializer without a product cannot have an adapter."""
    for use in initializer.result.uses:
        if is_standard(use.operation, "Conv") and use.index == 1:
            return "its convolution has groups"
    return "it is not the second factor of a MatMul, Gemm or Conv of the main graph"


def _other_reader(root: SSAValue, products: Iterable[Operation]) -> str | None:
    """An operator other than these products that reads a weight, perhaps moved, or None."""
    known, pending = set(products), [root]
    while pending:
        for use in pending.pop().uses:
            op = use.operation
            if is_standard(op, *MOVED) and use.index == 0:
                pending += op.results
            elif op not in known or use.index != 1:
                return op.op_type if isinstance(op, OnnxOp) else "an output"
    return None


@dataclass(frozen=True)
class Factors:
    """The numbers of an adapter."""

    a: Array
    b: Array
    scale: float
    """Factor of B A: alpha / rank."""


def add_adapters(
    module: ModuleOp, store: WeightStore, chosen: Mapping[str, Factors], dropout: float = 0.0
) -> None:
    """
    y = x w  ->  y = x w + scale * ((x A^T) B^T), and convolutions likewise, for the chosen weights.

    Dropout applies to the x of the second term. The term is computed in the type of A and B.
    """
    editor = Editor(module, store)
    if editor.opset < OLDEST_OPSET:
        raise ModelError(
            f"the model has operator set {editor.opset}, whose Add does not broadcast",
            "popgraph.lora",
            f"export it with operator set {OLDEST_OPSET} or later",
        )
    infer_shapes(module, store)
    held, _ = candidates(editor.graph)
    for name, factors in reversed([*chosen.items()]):  # The last initializer becomes the first.
        first, dtype = name_of_a(name), held[name].dtype.numpy
        b = editor.constant(name_of_b(first), factors.b.astype(dtype))
        a = editor.constant(first, factors.a.astype(dtype))
        for product in held[name].products:
            _Branch(editor, product, held[name].dtype).add(a, b, factors.scale, dropout)
    infer_shapes(module, store)


class _Branch:
    """The nodes that an adapter adds to one product."""

    def __init__(self, editor: Editor, product: Product, dtype: DType) -> None:
        self._editor, self._product, self._dtype = editor, product, dtype
        self._plain = product.op.results[0]
        self._name, self._place = value_name(self._plain), editor.after(self._plain)

    def add(self, a: SSAValue, b: SSAValue, scale: float, dropout: float) -> None:
        """Adds the term to the result, which keeps its name."""
        outer = self._product.dtype
        assert outer is not None, "checked by `candidates`"
        value = self._cast(self._product.op.operands[0], outer, self._dtype)
        if dropout:
            value = self._drop(value, dropout)
        value = self._times(value, a, "A", is_first=True)
        if scale != 1:
            value = self._node("Mul", [value, self._scalar(scale, "scale")], "scaled")
        value = self._times(value, b, "B", is_first=False)
        value = self._cast(value, self._dtype, outer)
        self._add_to_result(value)

    def _node(
        self,
        operator: str,
        inputs: Sequence[SSAValue],
        end: str,
        attributes: Mapping[str, object] | None = None,
    ) -> SSAValue:
        name = f"{self._name}_lora_{end}"
        return self._editor.node(operator, inputs, name, self._place, attributes)[0]

    def _scalar(self, number: float, end: str) -> SSAValue:
        """A Constant: an initializer would count as a weight."""
        return self._node("Constant", [], end, {"value": np.array(number, self._dtype.numpy)})

    def _cast(self, value: SSAValue, before: DType, after: DType) -> SSAValue:
        if before == after:
            return value
        return self._node("Cast", [value], after.name, {"to": after.onnx})

    def _drop(self, value: SSAValue, ratio: float) -> SSAValue:
        if self._editor.opset < RATIO_IS_INPUT:
            return self._node("Dropout", [value], "dropped", {"ratio": ratio})
        return self._node("Dropout", [value, self._scalar(ratio, "ratio")], "dropped")

    def _times(self, value: SSAValue, factor: SSAValue, end: str, *, is_first: bool) -> SSAValue:
        if self._product.form.kernel:
            attributes = self._product.op.onnx_attributes() if is_first else {}
            return self._node("Conv", [value, factor], end, attributes)
        moved = self._node("Transpose", [factor], f"{end}_transposed", {"perm": [1, 0]})
        return self._node("MatMul", [value, moved], end)

    def _add_to_result(self, value: SSAValue) -> None:
        plain = self._plain
        total = self._node("Add", [plain, value], "sum")
        set_type(total, plain.type)
        made = total.owner
        assert isinstance(made, OnnxOp), "a node was added"
        plain.replace_uses_with_if(total, lambda use: use.operation is not made)
        _exchange_names(self._product.op, made, self._editor.fresh(f"{self._name}_plain"))


def _exchange_names(op: OnnxOp, other: OnnxOp, name: str) -> None:
    """Gives the result of `other` the name of that of `op`, which gets a new one."""
    other.attributes["outputs"] = op.attributes["outputs"]
    other.results[0].name_hint = op.results[0].name_hint
    op.attributes["outputs"] = NamesAttr.of([name])
    op.results[0].name_hint = None


@dataclass(frozen=True)
class Adapter:
    """An adapter of a graph."""

    name: str
    """The weight that it adapts."""
    a: Initializer
    b: Initializer
    scale: float
    places: tuple[tuple[Product, OnnxOp], ...]
    """Each product with its weight, and the Add after it."""

    @property
    def rank(self) -> int:
        return shape_of(self.a)[0]

    @property
    def form(self) -> Form:
        return self.places[0][0].form

    def factors(self, store: WeightStore) -> Factors:
        """The numbers of the adapter."""
        return Factors(self.a.array(store), self.b.array(store), self.scale)


def find_adapters(module: ModuleOp, store: WeightStore) -> list[Adapter]:
    """The adapters of a model; ModelError for weights named like adapters with other nodes."""
    infer_shapes(module, store)
    editor = Editor(module, store)
    weights = weights_by_name(editor.graph)
    return [
        _adapter(editor, name, a, weights[name_of_b(name)])
        for name, a in weights.items()
        if name_of_b(name) in weights
    ]


def _adapter(editor: Editor, name: str, a: Initializer, b: Initializer) -> Adapter:
    places: list[tuple[Product, OnnxOp]] = []
    scales: set[float] = set()
    for first in _multiplied(a.result):
        value, scale = first.results[0], 1.0
        if is_standard(op := _reader(value), "Mul") and is_constant(op.operands[1]):
            value, scale = op.results[0], float(editor.array(op.operands[1]))
        second = _reader(value)
        if second is None or second not in [*_multiplied(b.result)]:
            raise _unknown_form(name)
        value = second.results[0]
        if is_standard(op := _reader(value), "Cast"):
            value = op.results[0]
        total = _reader(value)
        product = Product.of(total.operands[0].owner) if is_standard(total, "Add") else None  # type: ignore[arg-type]
        if product is None or not isinstance(total, OnnxOp):
            raise _unknown_form(name)
        places.append((product, total))
        scales.add(scale)
    if len({product.root for product, _ in places}) != 1 or len(scales) != 1:
        raise _unknown_form(name)
    return Adapter(places[0][0].name, a, b, scales.pop(), tuple(places))


def _multiplied(root: SSAValue) -> Iterator[OnnxOp]:
    """The nodes that multiply with a matrix or its transpose."""
    for use in root.uses:
        if is_standard(use.operation, "Transpose", "Identity"):
            yield from _multiplied(use.operation.results[0])
        elif is_standard(use.operation, "MatMul", "Conv") and use.index == 1:
            yield use.operation


def _reader(value: SSAValue) -> OnnxOp | None:
    """The node that reads a value, if there is only one."""
    found = value.get_user_of_unique_use()
    return found if isinstance(found, OnnxOp) else None


def _unknown_form(name: str) -> ModelError:
    return ModelError(
        f"weight {name!r} has the name of an adapter, but not its nodes",
        hint="adapters are nodes that popgraph.lora adds; merge those of other tools there",
    )


def merge_adapters(module: ModuleOp, store: WeightStore) -> None:
    """
    y = x w + scale * ((x A^T) B^T)  ->  y = x (w + scale * B A)

    A weight that is stored in blocks of integers becomes floats.
    """
    found = find_adapters(module, store)
    editor = Editor(module, store)
    for one in found:
        _merge(editor, one)
        for product, total in one.places:
            total.results[0].replace_all_uses_with(product.op.results[0])
            _exchange_names(total, product.op, editor.fresh(f"{value_name(total.results[0])}_sum"))
    drop_unused(module, inputs=False)
    infer_shapes(module, store)


def _merge(editor: Editor, adapter: Adapter) -> None:
    """Adds the delta of an adapter to its weight."""
    product, factors = adapter.places[0][0], adapter.factors(editor.store)
    delta = adapter.scale * adapter.form.delta(factors.a, factors.b)
    root = product.root
    if product.op.domain:
        raise ModelError(
            f"the packed integers of weight {adapter.name!r} take no delta",
            product.op.where(),
            "load the adapters into the model before its quantization, merge them there, and "
            "quantize the result",
        )
    if other := _other_reader(root, {product.op for product, _ in adapter.places}):
        raise ModelError(
            f"weight {adapter.name!r} is not merged, since {other} reads it, too",
            product.op.where(),
        )
    stored = root.owner
    if is_standard(stored, "Cast") and stored.operands[0].has_one_use():
        stored = stored.operands[0].owner  # Elements of 16 bits stay that.
    if isinstance(stored, Initializer) and is_float(stored):
        before = stored.properties["value"]
        assert isinstance(before, TensorAttr), "a factor is dense"
        old = stored.array(editor.store)
        new = (old.astype(np.float64) + delta).astype(old.dtype)
        stored.properties["value"] = before.with_elements(from_value(new, editor.store).held)
        return
    old = editor.array(root)
    _put(editor, root, adapter.name, (old.astype(np.float64) + delta).astype(old.dtype))


def _put(editor: Editor, root: SSAValue, name: str, array: Array) -> None:
    """Replaces a Constant by another, and a decoded weight by an initializer of its name."""
    old, spare = root.owner, editor.fresh(f"{name}_plain")
    assert isinstance(old, OnnxOp), "a node computes the weight"
    if is_standard(old, "Constant"):
        (value,) = editor.node("Constant", [], f"{name}_merged", old, {"value": array})
        assert isinstance(value.owner, OnnxOp), "a node was added"
        _exchange_names(old, value.owner, spare)
    else:
        label = name if value_name(root) == name else editor.fresh(name)
        old.attributes["outputs"] = NamesAttr.of([spare])
        made = Initializer(label, from_value(array, editor.store))
        first = editor.graph.block.first_op
        assert first is not None, "a graph ends with its outputs"
        editor.graph.block.insert_op_before(made, first)
        value = made.result
    root.replace_all_uses_with(value)
