"""What does every graphcore operation answer about itself, and what do the kinds answer for it?"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar, TypeAlias

import numpy as np
from xdsl.dialects.builtin import (
    FloatAttr,
    IntegerAttr,
    StringAttr,
    TensorType,
    f64,
    i1,
    i64,
)
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import IRDLOperation, operand_def, result_def, traits_def
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from popgraph.dialects.program.attributes import Array, IntsAttr
from popgraph.support import dtypes, shapes
from popgraph.support.errors import TypeMismatchError

Operand: TypeAlias = SSAValue | Operation
Tensor: TypeAlias = TensorType[Attribute]
Property: TypeAlias = bool | int | float | str | Sequence[int] | Attribute | None

PLACEHOLDER = TensorType(i1, [])


def tensor_of(value: Operand) -> Tensor:
    """The tensor type of a value."""
    type_ = SSAValue.get(value).type
    assert isinstance(type_, TensorType), f"graphcore values are tensors, not {type_}"
    return type_


def shape_of(value: Operand) -> shapes.Shape:
    return tensor_of(value).get_shape()


def dtype_of(value: Operand) -> dtypes.DType:
    return dtypes.from_ir(tensor_of(value).element_type)


def to_attribute(value: Property) -> Attribute | None:
    """Python's bool, int, float, str and int sequences as the builtin attributes for them."""
    match value:
        case None | Attribute():
            return value
        case bool():
            return IntegerAttr(int(value), i1)
        case int():
            return IntegerAttr(value, i64)
        case float():
            return FloatAttr(value, f64)
        case str():
            return StringAttr(value)
        case _:
            return IntsAttr.of(value)


class GraphcoreOp(IRDLOperation, ABC):
    """
    An operation of the graphcore level: a pure function of tensors.

    One class answers everything about one operation: its result types (`infer`), its meaning
    (`evaluate`), its gradient (`gradient`, where it has one) and how it is computed (its kind).
    Constructors take operands, then properties by keyword, and infer the result types.
    """

    traits = traits_def(Pure())

    def __init__(
        self,
        operands: Sequence[Operand | Sequence[Operand] | None],
        properties: Mapping[str, Property] | None = None,
    ) -> None:
        made = {name: to_attribute(value) for name, value in (properties or {}).items()}
        count = len(type(self).get_irdl_definition().results)
        super().__init__(
            operands=operands, properties=made, result_types=[PLACEHOLDER for _ in range(count)]
        )
        for result, type_ in zip(self.results, self.infer(), strict=True):
            result._type = type_  # the only moment in which a result's type is not known

    @abstractmethod
    def infer(self) -> tuple[Tensor, ...]:
        """The result types that the operands and properties imply; TypeMismatchError if none."""

    @abstractmethod
    def evaluate(self, *arrays: Array) -> tuple[Array, ...]:
        """The meaning, in NumPy: slow, obvious, right for every element type it admits."""

    def gradient(self, *gradients: SSAValue | None) -> tuple[Operand | None, ...]:
        """
        The gradient of each operand, given that of each result (None: no gradient flows there).

        Called under an implicit builder: constructing an operation inserts it. An operation
        without this method has no gradient.
        """
        raise AssertionError(f"{self.name} is not differentiable")

    @classmethod
    def is_differentiable(cls) -> bool:
        return cls.gradient is not GraphcoreOp.gradient

    def verify_(self) -> None:
        try:
            expected = self.infer()
        except TypeMismatchError as error:
            raise VerifyException(error.what) from error
        for result, type_ in zip(self.results, expected, strict=True):
            if result.type != type_:
                raise VerifyException(f"{self.name} gives {type_}, not {result.type}")


class Elementwise(GraphcoreOp):
    """
    Kind: one scalar function for every element, operands broadcast by NumPy's rule.

    `SCALAR` names the scalar function; the tile level and the C printer know it by that name.
    """

    SCALAR: ClassVar[str]
    result = result_def(TensorType)

    def result_element(self) -> Attribute:
        """The element type of the result; that of the operands unless an operation differs."""
        elements = {tensor_of(operand).element_type for operand in self.operands}
        if len(elements) > 1:
            listed = " and ".join(
                dtypes.from_ir(element).name for element in sorted(elements, key=str)
            )
            raise TypeMismatchError(f"{self.name} needs operands of one element type, not {listed}")
        return elements.pop()

    def infer(self) -> tuple[Tensor, ...]:
        shape = shapes.broadcast(*(shape_of(operand) for operand in self.operands))
        return (TensorType(self.result_element(), shape),)


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
    """Kind: many elements become one along `axes`; the tile level has a pattern per operation."""


class Contraction(GraphcoreOp):
    """Kind: sums of products (matrix products, convolutions and their gradients)."""


class Window(GraphcoreOp):
    """Kind: a function of a sliding window (pooling and its gradients)."""


class Movement(GraphcoreOp):
    """Kind: elements change place, never value."""


class Lookup(GraphcoreOp):
    """Kind: places that depend on data (gather and its gradient)."""


class Random(GraphcoreOp):
    """Kind: pseudo-random elements, a function of the seed operand alone."""


class Composite(GraphcoreOp):
    """Kind: defined by smaller operations; `expand` builds them."""

    @abstractmethod
    def expand(self) -> tuple[Operand, ...]:
        """Values equal to the results, built of smaller operations (implicit builder)."""


def as_array(value: object, dtype: dtypes.DType) -> Array:
    """`value` with the dtype that the IR promises (NumPy widens scalars and some reductions)."""
    return np.asarray(value).astype(dtype.numpy, copy=False)
