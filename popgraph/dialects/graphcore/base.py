"""The base of graphcore operations, and their kinds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, TypeAlias, TypeVar

import numpy as np
from xdsl.dialects.builtin import IntegerAttr, TensorType, i1
from xdsl.ir import Attribute, Operation, OpResult, SSAValue
from xdsl.irdl import IRDLOperation, irdl_op_definition, operand_def, result_def, traits_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from popgraph.dialects import element_types
from popgraph.dialects.graphcore.syntax import (
    parse_operation,
    print_operation,
    to_attribute,
)
from popgraph.dialects.program.attributes import IntsAttr
from popgraph.dialects.program.interned import tensor_type
from popgraph.dialects.value_types import set_type
from popgraph.support import dtypes, shapes
from popgraph.support.errors import TypeMismatchError
from popgraph.support.memo import by_identity

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
"""An array of any element type."""
Operand: TypeAlias = SSAValue | Operation
Tensor: TypeAlias = TensorType[Attribute]

PLACEHOLDER = TensorType(i1, [])


class Elements(NamedTuple):
    """A set of element types, with its name in messages."""

    words: str
    names: frozenset[str]


_FLOAT = frozenset({"f16", "bf16", "f32", "f64"})
_INTEGER = frozenset({"i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"})
_BOOL = frozenset({"bool"})

FLOATS = Elements("float", _FLOAT)
INTEGERS = Elements("integer", _INTEGER)
NUMBERS = Elements("float or integer", _FLOAT | _INTEGER)
BOOLS = Elements("bool", _BOOL)
BITS = Elements("bool or integer", _BOOL | _INTEGER)
ORDERED = Elements("float, integer or bool", _FLOAT | _INTEGER | _BOOL)
REAL = Elements("real", frozenset(dtypes.BY_NAME) - {"c64", "c128"})
ANY = Elements("any", frozenset(dtypes.BY_NAME))


def tensor_of(value: Operand) -> Tensor:
    """The tensor type of a value."""
    result = (
        value if type(value) is OpResult else SSAValue.get(value)
    )  # most calls: 0.3 us, not 3 by `get`
    type_ = result.type
    assert isinstance(type_, TensorType), f"graphcore values are tensors, not {type_}"
    return type_


_shape = by_identity(TensorType.get_shape)
"""The shape of a type: rules ask for the same few types thousands of times."""


def shape_of(value: Operand) -> shapes.Shape:
    return _shape(tensor_of(value))


def dtype_of(value: Operand) -> dtypes.DType:
    return element_types.from_ir(tensor_of(value).element_type)


def is_float(value: Operand) -> bool:
    """Whether gradients can flow through values of this element type."""
    return dtype_of(value).name in FLOATS.names


def is_number(value: Operand) -> bool:
    return dtype_of(value).name in NUMBERS.names


def integer(attribute: IntegerAttr[Any]) -> int:
    """The value of an integer property."""
    return attribute.value.data


def flag(attribute: IntegerAttr[Any]) -> bool:
    """The value of a bool property."""
    return attribute.value.data != 0


class GraphcoreOp(IRDLOperation, ABC):
    """
    An operation of the graphcore level: a pure function of tensors.

    One class holds everything about one operation: its result types (`infer`), its meaning
    (`evaluate`), its gradient (`gradient`, if any) and, by its kind, how it is lowered.
    Constructors take operands, then properties by keyword, and infer the result types.
    """

    ONNX: ClassVar[str] = ""
    """
    ONNX operators with the same operands and meaning, separated by spaces.

    Names outside ONNX's default domain carry their domain: `ai.graphcore.Log1p`.
    """

    traits = traits_def(Pure())

    # Overrides of `evaluate` and `gradient` name their parameters: one array per operand, one
    # gradient per result. `Any` allows such overrides.

    def __init__(
        self,
        operands: Sequence[Operand | Sequence[Operand] | None],
        properties: Mapping[str, object] | None = None,
    ) -> None:
        made = {name: to_attribute(value) for name, value in (properties or {}).items()}
        count = len(type(self).get_irdl_definition().results)
        super().__init__(
            operands=operands, properties=made, result_types=[PLACEHOLDER for _ in range(count)]
        )
        for result, type_ in zip(self.results, self.infer(), strict=True):
            set_type(result, type_)  # `infer` reads operands, so it runs after xDSL's constructor

    @abstractmethod
    def infer(self) -> tuple[Tensor, ...]:
        """The result types for these operands and properties; TypeMismatchError if none fit."""

    @abstractmethod
    def evaluate(self, *arrays: Any, **_: Any) -> tuple[Array, ...]:
        """The meaning in NumPy: slow, obvious, correct for every element type that it accepts."""

    def gradient(self, *gradients: Any, **_: Any) -> tuple[Operand | None, ...]:
        """
        Operand gradients, given the result gradients; None where no gradient flows.

        Called under an implicit builder: constructing an operation inserts it. Autodiff expands a
        composite without this method; any other operation without it is not differentiable.
        """
        raise AssertionError(f"{self.name} is not differentiable")

    @classmethod
    def is_differentiable(cls) -> bool:
        return cls.gradient is not GraphcoreOp.gradient

    @property
    def title(self) -> str:
        """The operation's name in messages."""
        return self.name.removeprefix("graphcore.")

    def fail(self, what: str, hint: str = "") -> TypeMismatchError:
        """An error about this operation; the message begins with its name."""
        return TypeMismatchError(f"{self.title} {what}", hint=hint)

    def common_element(self, elements: Elements, *values: Operand) -> Attribute:
        """The shared element type of `values`, which must be among `elements`."""
        found = {tensor_of(value).element_type: dtype_of(value).name for value in values}
        if len(found) > 1:
            listed = " and ".join(found.values())
            raise self.fail(
                f"needs operands of one element type, not {listed}", "cast one of them first"
            )
        ((element, name),) = found.items()
        if name not in elements.names:
            raise self.fail(
                f"needs {elements.words} elements, not {name}", "cast the operand first"
            )
        return element

    def checked_element(self, elements: Elements, element: Attribute) -> Attribute:
        """Checks an element type that a property requests: it must be among `elements`."""
        try:
            name = element_types.from_ir(element).name
        except KeyError:
            raise self.fail(f"does not support element type {element}") from None
        if name not in elements.names:
            raise self.fail(f"produces {elements.words} elements, not {name}")
        return element

    def check_axes(self, axes: Sequence[int], rank: int) -> None:
        """Checks that axes are in range and unique."""
        for axis in axes:
            if not 0 <= axis < rank:
                raise self.fail(
                    f"has no axis {axis} in a tensor of rank {rank}",
                    f"axes count from 0 to {rank - 1}" if rank else "a scalar has no axes",
                )
        if len(set(axes)) != len(axes):
            raise self.fail(f"has a duplicate axis in {list(axes)}", "list every axis once")

    def check_lengths(self, length: int, **lists: IntsAttr) -> None:
        """Checks that every list has `length` entries, one per dimension."""
        for name, numbers in lists.items():
            if len(numbers) != length:
                raise self.fail(f"needs {length} values in {name}, not {len(numbers)}")

    def verify_(self) -> None:
        for value in (*self.operands, *self.results):
            if not tensor_of(value).has_static_shape():
                raise VerifyException(f"{self.name} requires static shapes, not {value.type}")
            try:
                dtype_of(value)
            except KeyError:
                raise VerifyException(
                    f"{self.name} does not support elements of {value.type}"
                ) from None
        try:
            expected = self.infer()
        except TypeMismatchError as error:
            raise VerifyException(error.what) from error
        for result, type_ in zip(self.results, expected, strict=True):
            if result.type != type_:
                raise VerifyException(f"the result of {self.name} is {type_}, not {result.type}")

    def print(self, printer: Printer) -> None:
        defined = type(self).get_irdl_definition().properties
        print_operation(
            printer,
            self,
            {name: self.properties[name] for name in defined if name in self.properties},
        )

    @classmethod
    def parse(cls, parser: Parser) -> GraphcoreOp:
        return parse_operation(parser, cls)


Op = TypeVar("Op", bound=GraphcoreOp)

OPERATIONS: list[type[GraphcoreOp]] = []
"""All operations of the dialect without bodies, collectives and exchanges."""


def operation(cls: type[Op]) -> type[Op]:
    """Registers a class as an xDSL operation of the dialect."""
    made = irdl_op_definition(cls)
    OPERATIONS.append(made)
    return made


class Elementwise(GraphcoreOp):
    """
    Kind: one scalar function applied to each element; operands broadcast by NumPy's rule.

    `SCALAR` names the scalar function: a record of `dialects/tile/scalars.py`, or a composition
    of records in `passes/graphcore/to_structured/scalars.py`.
    """

    SCALAR: ClassVar[str]
    ELEMENTS: ClassVar[Elements] = NUMBERS
    result = result_def(TensorType)

    def result_element(self) -> Attribute:
        """The element type of the result: that of the operands unless overridden."""
        return self.common_element(self.ELEMENTS, *self.operands)

    def infer(self) -> tuple[Tensor, ...]:
        element = self.result_element()
        shape = shapes.broadcast(*(shape_of(operand) for operand in self.operands))
        return (tensor_type(element, shape),)


class Unary(Elementwise):
    """Kind: an elementwise function of one operand."""

    x = operand_def(TensorType)

    def __init__(self, x: Operand) -> None:
        super().__init__([x])


class Binary(Elementwise):
    """Kind: an elementwise function of two operands."""

    lhs = operand_def(TensorType)
    rhs = operand_def(TensorType)

    def __init__(self, lhs: Operand, rhs: Operand) -> None:
        super().__init__([lhs, rhs])


class Reduction(GraphcoreOp):
    """Kind: combines the elements along `axes` into one; each operation has its own lowering."""


class Contraction(GraphcoreOp):
    """Kind: sums of products: matmuls, convolutions and their gradients."""


class Window(GraphcoreOp):
    """Kind: a function of a sliding window (pooling and its gradients)."""


class Movement(GraphcoreOp):
    """Kind: moves or copies elements and never changes a value."""


class Lookup(GraphcoreOp):
    """Kind: element positions depend on data: gather, scatter and their gradients."""


class Random(GraphcoreOp):
    """Kind: pseudo-random elements, a pure function of the state operand."""


class Composite(GraphcoreOp):
    """Kind: defined by smaller operations, which `expand` builds."""

    @abstractmethod
    def expand(self) -> tuple[Operand, ...]:
        """Values equal to the results, built from smaller operations (implicit builder)."""


def as_array(value: object, dtype: dtypes.DType) -> Array:
    """`value` in the dtype of the IR: NumPy widens scalars and some reductions."""
    return np.asarray(value).astype(dtype.numpy, copy=False)


def precisely(function: Callable[..., Any], *arrays: Array) -> Array:
    """
    Applies `function` in float64 and rounds once, to the dtype of the first array.

    Integers and bools keep their types, so integers wrap as in C. Overflow gives infinity and
    undefined results NaN, without warnings, as in IEEE 754.
    """
    return precisely_each(lambda *wide: (function(*wide),), *arrays)[0]


def precisely_each(function: Callable[..., tuple[Any, ...]], *arrays: Array) -> tuple[Array, ...]:
    """Like `precisely`, for functions with several results."""
    wide = [
        array.astype(np.float64) if dtypes.from_numpy(array.dtype).name in _FLOAT else array
        for array in arrays
    ]
    with np.errstate(all="ignore"):
        return tuple(
            np.asarray(result).astype(arrays[0].dtype, copy=False) for result in function(*wide)
        )
