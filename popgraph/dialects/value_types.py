"""Changes the type of a value in place."""

from __future__ import annotations

from xdsl.ir import Attribute, SSAValue


def set_type(value: SSAValue, type_: Attribute) -> None:
    """
    Gives a value another type.

    xDSL's own way, `Rewriter.replace_value_with_new_type`, creates another value, and names,
    analyses and callers that hold this one would lose it. `_type` is private to xDSL.
    """
    value._type = type_
