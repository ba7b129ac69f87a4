"""What operators of versions compute that onnx's reference takes for their successors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun

from popgraph.support.arrays import Array

Meaning = Callable[..., Array]
"""The result for the operands, and the attributes by name (those that are absent are None)."""


def placed(function: Callable[..., Any]) -> Meaning:
    """The second operand stands at `axis` of the first, not at its end."""

    def compute(a: Array, b: Array, axis: int | None = None, **_: Any) -> Array:
        if axis is not None:
            b = b.reshape(*b.shape, *(1,) * (a.ndim - axis % a.ndim - b.ndim))
        return np.asarray(function(a, b))

    return compute


def flattened(function: Callable[[Array], Array]) -> Meaning:
    """Along all axes from `axis` on, taken as one."""

    def compute(x: Array, axis: int | None = None, **_: Any) -> Array:
        before = x.shape[: 1 if axis is None else axis]
        return function(x.reshape(int(np.prod(before)), -1)).reshape(x.shape)

    return compute


def _softmax(x: Array) -> Array:
    powers = np.exp(x - x.max(1, keepdims=True))
    return np.asarray(powers / powers.sum(1, keepdims=True))


def _log_softmax(x: Array) -> Array:
    below = x - x.max(1, keepdims=True)
    return np.asarray(below - np.log(np.exp(below).sum(1, keepdims=True)))


def _hardmax(x: Array) -> Array:
    return np.asarray(np.arange(x.shape[1]) == x.argmax(1)[:, None], x.dtype)


def _clip(x: Array, min: float | None = None, max: float | None = None, **_: Any) -> Array:
    low = -np.inf if min is None else min
    return np.clip(x, low, np.inf if max is None else max).astype(x.dtype)


def _prelu(x: Array, slope: Array, **_: Any) -> Array:
    """A list of slopes is one per channel."""
    if slope.ndim == 1 and x.ndim > 2:
        slope = slope.reshape(-1, *(1,) * (x.ndim - 2))
    return np.where(np.less(x, 0), np.multiply(x, slope), x)


def _divide(a: Array, b: Array) -> Array:
    return np.asarray(np.divide(a, b) if a.dtype.kind == "f" else np.floor_divide(a, b))


PLACED: dict[str, Callable[..., Any]] = {
    "Add": np.add,
    "And": np.logical_and,
    "Div": _divide,
    "Equal": np.equal,
    "Greater": np.greater,
    "Less": np.less,
    "Mul": np.multiply,
    "Or": np.logical_or,
    "Pow": np.power,
    "Sub": np.subtract,
    "Xor": np.logical_xor,
}
OLDER: dict[str, tuple[int, Meaning]] = {
    **{name: (7, placed(function)) for name, function in PLACED.items()},
    "Clip": (6, _clip),
    "PRelu": (7, _prelu),
    "Softmax": (13, flattened(_softmax)),
    "LogSoftmax": (13, flattened(_log_softmax)),
    "Hardmax": (13, flattened(_hardmax)),
}
"""Until which version (not included) an operator had another meaning, and which."""


def older(op_type: str, version: int) -> list[type[OpRun]]:
    """The operator as onnx's reference wants it, if it needs to be told."""
    until, meaning = OLDER.get(op_type, (0, None))
    if version >= until:
        return []
    return [type(op_type, (OpRun,), {"op_domain": "", "_run": _run_of(meaning)})]


def _run_of(meaning: Any) -> Callable[..., tuple[Array]]:
    def run(self: OpRun, *operands: Array, **attributes: Any) -> tuple[Array]:
        return (meaning(*operands, **attributes),)

    return run
