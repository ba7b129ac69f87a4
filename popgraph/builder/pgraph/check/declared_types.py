"""Checks declared types such as `f32[N, 3]` against the values that they annotate."""

from __future__ import annotations

from xdsl.dialects.builtin import TensorType, UnrankedTensorType
from xdsl.ir import Attribute, SSAValue

from popgraph.builder.pgraph.check.const_eval import folded
from popgraph.builder.pgraph.check.scope import Scope
from popgraph.builder.pgraph.syntax import literals
from popgraph.builder.pgraph.syntax.source import Failed, Source
from popgraph.builder.pgraph.syntax.tree import (
    AnyType,
    Call,
    Everything,
    Expression,
    Index,
    Missing,
    Name,
    Number,
    OtherType,
    Slice,
    Text,
    Type,
    Unknown,
)
from popgraph.dialects.onnx.types import (
    UNKNOWN,
    Dim,
    MapType,
    OpaqueType,
    OptType,
    SeqType,
    SparseType,
    UnknownType,
    describe,
    dims,
    element_type,
    erased,
    refined,
    tensor_type,
)
from popgraph.dialects.program import BytesAttr
from popgraph.dialects.value_types import set_type
from popgraph.support.shapes import Shape

_LARGEST = 1 << 40
"""Larger dimensions are an error: no such tensor fits into memory."""

KINDS = {
    "sequence": "`sequence(f32[N])`",
    "optional": "`optional(f32[N])`",
    "map": "`map(i64, f32[...])`",
    "sparse": "`sparse(f32[3, 4])`",
    "opaque": '`opaque("my.domain", "Thing")`',
    "unknown": "`unknown()`",
}
"""Types other than tensors, with their syntax."""


def declared_type(source: Source, type_: AnyType, scope: Scope) -> Attribute:
    """The IR type; fails if the element type does not exist."""
    if isinstance(type_, OtherType):
        return _other(source, type_, scope)
    element: str | Attribute = type_.dtype.text
    if element == "unknown" and type_.dims:
        element = UNKNOWN
    elif not literals.check_dtype(source, type_.dtype):
        raise Failed
    if type_.dims is None:
        return tensor_type(element, None)
    return tensor_type(element, [_dim(source, dim, scope) for dim in type_.dims])


def _other(source: Source, type_: OtherType, scope: Scope) -> Attribute:
    parts = [
        part.value if isinstance(part, Text) else declared_type(source, part, scope)
        for part in type_.parts
    ]
    match type_.kind.text, parts:
        case "sequence", [Attribute() as element]:
            return SeqType(element)
        case "optional", [Attribute() as element]:
            return OptType(element)
        case "map", [Attribute(), Attribute() as value]:
            key = type_.parts[0]
            if isinstance(key, Type) and not key.dims:
                return MapType(element_type(key.dtype.text), value)
        case "sparse", [TensorType() | UnrankedTensorType() | UnknownType() as dense]:
            return SparseType(dense)
        case "opaque", [str(domain), str(name)]:
            return OpaqueType(BytesAttr.of(domain), BytesAttr.of(name))
        case "unknown", []:
            return UNKNOWN
    if literals.is_dtype(type_.kind.text):
        source.parse_error(type_.span, "a shape is written in square brackets", "`f32[N, 3]`")
        raise Failed
    hint = KINDS.get(type_.kind.text, f"one of {', '.join(KINDS.values())}, or a tensor")
    source.mismatch(type_.span, f"there is no type `{type_.kind.text}` of these parts", hint)
    raise Failed


def _dim(source: Source, dim: Expression, scope: Scope) -> Dim:
    found = folded(source, dim, scope.known)
    match found:
        case Number(value=int() as size) if 0 <= size <= _LARGEST:
            return size
        case Number(value=int() as size) if size > _LARGEST:
            source.mismatch(found.span, f"a dimension of {size} is too large")
        case Name():
            return scope.dim(found.text)
        case Unknown():
            return None
        case _:
            source.mismatch(
                found.span,
                "a dimension is an integer, a name or `?`",
                "`f32[N, 3]`, `f32[N, 4 * width]`; `?` is an unknown dimension",
            )
    raise Failed


def static_type(source: Source, type_: AnyType, what: str, scope: Scope) -> tuple[str, Shape]:
    """The element type and the shape of a static type."""
    found = declared_type(source, type_, scope)
    sizes = dims(found)
    if not isinstance(type_, Type) or sizes is None:
        source.mismatch(type_.span, f"the shape of {what} must be numbers only")
        raise Failed
    for dim, size in zip(type_.dims or (), sizes, strict=True):
        if not isinstance(size, int):
            source.mismatch(dim.span, f"the shape of {what} must be numbers only")
            raise Failed
    return type_.dtype.text, tuple(size for size in sizes if isinstance(size, int))


def check_declared(
    source: Source,
    name: str,
    type_: AnyType,
    value: SSAValue,
    scope: Scope,
    *,
    unchecked: bool = False,
) -> Attribute:
    """
    Checks a declared type against `value` and refines the value's type.

    With `unchecked`, any value is accepted, for models with wrong declarations.
    """
    wanted = declared_type(source, type_, scope)
    found = value.type
    if not unchecked and not may_be(found, wanted):
        source.mismatch(
            type_.span,
            f"`{name}` is declared as {describe(wanted)}, but it is {describe(found)}",
            f"write `{name}: {describe(found)}`, or look at what makes it so",
        )
        raise Failed
    if check_dtype_of(found, wanted):
        set_type(value, refined(found, wanted))
    return wanted


def check_dtype_of(found: Attribute, wanted: Attribute) -> bool:
    """Whether types agree, except for dimensions."""
    return UNKNOWN in (found, wanted) or erased(found) == erased(wanted)


def may_be(found: Attribute, wanted: Attribute) -> bool:
    """Whether a value of one type may be declared as another."""
    if isinstance(found, UnknownType):
        return True
    if isinstance(wanted, UnknownType):
        return True
    if not isinstance(found, TensorType | UnrankedTensorType) or not isinstance(
        wanted, TensorType | UnrankedTensorType
    ):
        return erased(found) == erased(wanted)
    if found.element_type != wanted.element_type:
        return False
    mine, other = dims(found), dims(wanted)
    if mine is None or other is None:
        return True
    return len(mine) == len(other) and all(
        a is None or b is None or a == b for a, b in zip(mine, other, strict=True)
    )


def type_of(expression: Expression | None) -> AnyType | None:
    """The type spelled by an expression, if any."""
    match expression:
        case Name():
            return Type(expression.span, expression, ())
        case Index(operand=Name() as dtype, subscripts=[Everything()]):
            return Type(expression.span, dtype, None)
        case Index(operand=Name() as dtype, subscripts=subscripts):
            dims = tuple(one for one in subscripts if not isinstance(one, _NO_DIM))
            return Type(expression.span, dtype, dims) if len(dims) == len(subscripts) else None
        case Call(path=path, arguments=arguments) if len(path.parts) == 1:
            parts = [_part(one.value) for one in arguments if one.keyword is None]
            if None in parts or len(parts) < len(arguments):
                return None
            return OtherType(expression.span, path.parts[0], tuple(filter(None, parts)))
        case _:
            return None


_NO_DIM = (Slice, Everything, Missing)


def _part(value: Expression | Missing) -> AnyType | Text | None:
    if isinstance(value, Missing | Text):
        return None if isinstance(value, Missing) else value
    return type_of(value)
