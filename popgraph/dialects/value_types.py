"""Changes the type of a value in place."""

from __future__ import annotations

from xdsl.ir import Attribute, SSAValue


def set_type(value: SSAValue, type_: Attribute) -> None:
    """
    Sets the type of a value.

    xDSL's own `Rewriter.replace_value_with_new_type` creates another value: names, analyses and
    callers that hold this one would lose it. `_type` is private to xDSL.
    """
    value._type = type_
