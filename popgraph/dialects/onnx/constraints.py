"""IRDL constraints for operands, results and attributes of ONNX operators."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from typing_extensions import TypeVar
from xdsl.dialects.builtin import DenseArrayBase, FloatAttr, IntegerAttr, f32
from xdsl.ir import Attribute
from xdsl.irdl import AttrConstraint, IntConstraint, VerificationContext
from xdsl.utils.exceptions import VerifyException

from popgraph.dialects.onnx.attributes import (
    FloatsAttr,
    ManyAttr,
    RefAttr,
    SparseTensorAttr,
    TensorAttr,
    TypeAttr,
)
from popgraph.dialects.onnx.types import (
    NamesAttr,
    UnknownType,
    describe,
    erased,
    static_shape,
    tensor_type,
)
from popgraph.dialects.program import BytesAttr


@dataclass(frozen=True)
class TypeVariable(AttrConstraint):
    """
    A type variable of a schema: one of the `allowed` types, compared without shapes.

    Operands and results that share its name must agree; heterogeneous variadics have no name. A
    value of unknown type is always accepted and binds nothing. A one-element f32 tensor binds
    nothing either: PopART's programs use such scalars next to f16 tensors.
    """

    variable: str | None
    allowed: frozenset[Attribute]

    def verify(self, attr: Attribute, constraint_context: VerificationContext) -> None:
        if isinstance(attr, UnknownType):
            return
        shapeless = erased(attr)
        if shapeless not in self.allowed:
            wanted = ", ".join(sorted(describe(one).removesuffix("[...]") for one in self.allowed))
            raise VerifyException(f"{describe(attr)} is not one of {wanted}")
        if self.variable is not None and not _is_single(attr):
            constraint_context.set_attr_variable(self.variable, shapeless)

    def mapping_type_vars(
        self, type_var_mapping: Mapping[TypeVar, AttrConstraint | IntConstraint]
    ) -> TypeVariable:
        return self


def _is_single(type_: Attribute) -> bool:
    shape = static_shape(type_)
    return shape is not None and prod(shape) == 1 and erased(type_) == tensor_type(f32, None)


KINDS: dict[str, type[Attribute]] = {
    "INT": IntegerAttr,
    "INTS": DenseArrayBase,
    "FLOAT": FloatAttr,
    "FLOATS": FloatsAttr,
    "STRING": BytesAttr,
    "STRINGS": NamesAttr,
    "TENSOR": TensorAttr,
    "SPARSE_TENSOR": SparseTensorAttr,
    "TYPE_PROTO": TypeAttr,
    "TENSORS": ManyAttr,
    "SPARSE_TENSORS": ManyAttr,
    "TYPE_PROTOS": ManyAttr,
}
"""The IR attribute of each ONNX attribute kind (GRAPH and GRAPHS are regions)."""


@dataclass(frozen=True)
class OfKind(AttrConstraint):
    """An attribute of an ONNX kind, or inside a function a reference to the caller's."""

    kind: str

    def verify(self, attr: Attribute, constraint_context: VerificationContext) -> None:
        if not isinstance(attr, (KINDS[self.kind], RefAttr)):
            raise VerifyException(f"expected an attribute of kind {self.kind}, not {attr}")

    def mapping_type_vars(
        self, type_var_mapping: Mapping[TypeVar, AttrConstraint | IntConstraint]
    ) -> OfKind:
        return self
