"""Which optimizer does `SGD(0.1, momentum=0.9)` name?"""

from __future__ import annotations

import dataclasses
from difflib import get_close_matches
from typing import TYPE_CHECKING

from popgraph.support.errors import PopgraphError

if TYPE_CHECKING:
    from popgraph.builder.dsl import OptimizerCall
    from popgraph.passes.optimizer_spec import OptimizerSpec


def optimizer_of(call: OptimizerCall) -> OptimizerSpec:
    """The description that passes take; names are compared without case and underscores."""
    from popgraph.passes.optimizer_spec import Scalar

    kind, mode = _kind(call)
    entries = {
        field.name: field.default
        for field in dataclasses.fields(kind)
        if isinstance(field.default, Scalar | bool | str)
    }
    given: dict[str, object] = {}
    for name, value in call.arguments.items():
        if name not in entries:
            close = get_close_matches(name, entries, 1)
            raise PopgraphError(
                f"{call.name} has no parameter {name!r}",
                call.where,
                f"did you mean {close[0]!r}?" if close else f"it has {', '.join(entries)}",
            )
        given[name] = _fitted(call, name, value, entries[name])
    if mode:
        given.setdefault("mode", mode)
    return kind(**given)  # type: ignore[arg-type]


def _kind(call: OptimizerCall) -> tuple[type[OptimizerSpec], str]:
    """The class, and its mode where the name is that of a mode: RMSProp, AdaGrad, LAMB."""
    from popgraph.passes.optimizer_spec import KINDS

    wanted = _plain(call.name)
    names = {_plain(kind): (cls, "") for kind, cls in KINDS.items()}
    for cls in KINDS.values():
        for mode in getattr(cls, "MODES", ()):
            names.setdefault(_plain(mode), (cls, mode))
    if wanted not in names:
        close = get_close_matches(wanted, names, 1)
        raise PopgraphError(
            f"there is no optimizer {call.name!r}",
            call.where,
            f"did you mean {close[0]!r}?" if close else f"one of {', '.join(names)}",
        )
    return names[wanted]


def _plain(name: str) -> str:
    return name.replace("_", "").lower()


def _fitted(call: OptimizerCall, name: str, value: object, default: object) -> object:
    """The value in the form in which the optimizer keeps it."""
    from popgraph.passes.optimizer_spec import Scalar

    if isinstance(default, Scalar) and isinstance(value, int | float):
        return Scalar(float(value))
    if isinstance(value, type(default)):
        return value
    wanted = {"Scalar": "a number", "bool": "true or false", "str": "a string"}
    raise PopgraphError(
        f"{name!r} of {call.name} is {wanted[type(default).__name__]}, not {value!r}", call.where
    )
