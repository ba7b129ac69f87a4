"""Prints constants as C literals, exact to the last bit."""

from __future__ import annotations

import math
import sys

import numpy as np
from xdsl.dialects.builtin import ArrayAttr, DenseIntOrFPElementsAttr, FloatAttr, IntegerAttr
from xdsl.ir import Attribute

from popgraph.backends.c.print import types
from popgraph.backends.c.print.types import Element
from popgraph.dialects import element_types
from popgraph.support.errors import UnsupportedError


def literal(attribute: Attribute, type_: Attribute) -> str:
    """The C text of a constant, in parentheses where an expression may need them."""
    found = types.element(type_)
    if isinstance(attribute, DenseIntOrFPElementsAttr):
        count = types.lanes(type_) or 1
        values = list(attribute.get_values())
        values = values * count if len(values) == 1 else values
        texts = (_number(value, found, attribute.get_element_type()) for value in values)
        sign = "-" if found.kind == "bool" else ""
        return f"(({types.value(type_)}){{{', '.join(sign + text for text in texts)}}})"
    if isinstance(attribute, ArrayAttr):
        parts = (literal(part, part.type) for part in attribute)
        return f"(({found.name}){{{', '.join(parts)}}})"
    if isinstance(attribute, IntegerAttr):
        return _number(attribute.value.data, found, type_)
    if isinstance(attribute, FloatAttr):
        return _number(attribute.value.data, found, type_)
    raise UnsupportedError(f"C has no literal for {attribute}")


def _number(value: float | int, found: Element, type_: Attribute) -> str:
    # C11 has no literals of halves: their bits are an integer.
    if found.kind == "half":
        rounded = np.array(value).astype(element_types.from_ir(type_).numpy)
        return f"{int.from_bytes(rounded.tobytes(), sys.byteorder):#06x}"
    if found.kind == "float":
        return _float(float(value), "f" if found.bits == 32 else "")
    if found.kind == "bool":
        return str(int(bool(value)))
    return _integer(int(value), found)


def _integer(value: int, found: Element) -> str:
    if found.signed:
        value = (value + (1 << found.bits - 1)) % (1 << found.bits) - (1 << found.bits - 1)
    else:
        value %= 1 << found.bits
    # `-9223372036854775808` negates a literal that no signed type holds.
    if value == -(1 << 63):
        return "INT64_MIN"
    if not found.signed:
        return f"UINT64_C({value})" if found.bits == 64 else f"{value}u"
    text = str(value) if abs(value) < 1 << 31 else f"INT64_C({value})"
    return f"({text})" if value < 0 else text


def _float(value: float, suffix: str) -> str:
    if math.isnan(value):
        return "NAN" if suffix else "(f64)NAN"
    if math.isinf(value):
        text = "INFINITY" if suffix else "(f64)INFINITY"
        return f"(-{text})" if value < 0 else text
    # Hexadecimal is exact by definition; short decimals are exact as well, and readable.
    short = repr(value)
    text = short if len(short) < 8 and "e" not in short else _hex(value)
    text += suffix
    return f"({text})" if math.copysign(1.0, value) < 0 else text


def _hex(value: float) -> str:
    """`0x1.4p+1` rather than `0x1.4000000000000p+1`."""
    digits, exponent = value.hex().split("p")
    return f"{digits.rstrip('0').rstrip('.')}p{exponent}"
