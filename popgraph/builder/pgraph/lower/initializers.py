"""Weight initializers: `zeros`, `he_normal(seed=1)` and their like."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from math import prod, sqrt

import numpy as np

from popgraph.support.arrays import Array
from popgraph.support.shapes import Shape

Initializer = Callable[..., Array]


def zeros(shape: Shape) -> Array:
    """All 0."""
    return np.zeros(shape)


def ones(shape: Shape) -> Array:
    """All 1."""
    return np.ones(shape)


def constant(shape: Shape, value: float) -> Array:
    """All `value`."""
    return np.full(shape, value)


def normal(shape: Shape, mean: float = 0.0, std: float = 1.0, *, seed: int) -> Array:
    """Normally distributed around `mean`, with the standard deviation `std`."""
    return np.random.default_rng(seed).normal(mean, std, shape)


def uniform(shape: Shape, low: float = 0.0, high: float = 1.0, *, seed: int) -> Array:
    """Uniform over [`low`, `high`)."""
    return np.random.default_rng(seed).uniform(low, high, shape)


def glorot_uniform(shape: Shape, gain: float = 1.0, *, seed: int) -> Array:
    """Uniform over +-`gain` * sqrt(6 / (inputs + outputs)) (Glorot and Bengio 2010)."""
    limit = gain * sqrt(6 / sum(fans(shape)))
    return uniform(shape, -limit, limit, seed=seed)


def glorot_normal(shape: Shape, gain: float = 1.0, *, seed: int) -> Array:
    """Normal with the deviation `gain` * sqrt(2 / (inputs + outputs))."""
    return normal(shape, 0.0, gain * sqrt(2 / sum(fans(shape))), seed=seed)


def he_uniform(shape: Shape, gain: float = 1.0, *, seed: int) -> Array:
    """Uniform over +-`gain` * sqrt(6 / inputs)."""
    limit = gain * sqrt(6 / fans(shape)[0])
    return uniform(shape, -limit, limit, seed=seed)


def he_normal(shape: Shape, gain: float = 1.0, *, seed: int) -> Array:
    """Normal with the deviation `gain` * sqrt(2 / inputs) (He and others 2015)."""
    return normal(shape, 0.0, gain * sqrt(2 / fans(shape)[0]), seed=seed)


def truncated_normal(shape: Shape, mean: float = 0.0, std: float = 1.0, *, seed: int) -> Array:
    """Like `normal`, but values more than 2 `std` from `mean` are redrawn."""
    generator = np.random.default_rng(seed)
    drawn = generator.normal(size=shape)
    while (outside := np.abs(drawn) > 2).any():
        drawn[outside] = generator.normal(size=int(outside.sum()))
    return np.asarray(mean + std * drawn)


def orthogonal(shape: Shape, gain: float = 1.0, *, seed: int) -> Array:
    """
    Orthogonal rows, or columns if there are fewer, of length `gain` (Saxe 2013).

    Axes after the first count as one.
    """
    rows, columns = (shape[0], prod(shape[1:])) if len(shape) > 1 else (1, prod(shape))
    drawn = np.random.default_rng(seed).normal(size=(max(rows, columns), min(rows, columns)))
    q, r = np.linalg.qr(drawn)
    rotation = q * np.where(np.diag(r) < 0, -1.0, 1.0)  # which makes every rotation as likely
    return np.asarray(gain * (rotation if rows >= columns else rotation.T).reshape(shape))


def eye(shape: Shape, gain: float = 1.0) -> Array:
    """`gain` on the diagonal of the last two axes, else 0."""
    if len(shape) < 2:
        raise ValueError("this needs at least two axes")
    return np.broadcast_to(gain * np.eye(shape[-2], shape[-1]), shape)


def arange(shape: Shape, start: float = 0, step: float = 1) -> Array:
    """`start`, `start + step`, ... in row-major order."""
    return (start + step * np.arange(prod(shape))).reshape(shape)


def linspace(shape: Shape, first: float = 0.0, last: float = 1.0) -> Array:
    """From `first` to `last` in equal steps, in row-major order."""
    return np.linspace(first, last, prod(shape)).reshape(shape)


INITIALIZERS: dict[str, Initializer] = {
    function.__name__: function
    for function in (
        zeros,
        ones,
        constant,
        normal,
        uniform,
        glorot_uniform,
        glorot_normal,
        he_uniform,
        he_normal,
        truncated_normal,
        orthogonal,
        eye,
        arange,
        linspace,
    )
}


DRAWN = 3
"""Cost of a random element relative to a constant one."""


def work(initializer: Initializer, shape: Shape) -> int:
    """The cost of an initializer, in constant elements."""
    if initializer is truncated_normal:
        return 3 * DRAWN * prod(shape)
    if initializer is orthogonal:  # the more right angles there are, the more each costs
        rows = shape[0] if len(shape) > 1 else 1
        return prod(shape) * (DRAWN + min(rows, prod(shape[1:])) // 64)
    return prod(shape) * (DRAWN if "seed" in signature(initializer).parameters else 1)


def fans(shape: Shape) -> tuple[int, int]:
    """
    (fan-in, fan-out) of a weight.

    A matrix is [inputs, outputs], as in `x @ w`; the weight of a convolution is [outputs, inputs,
    *kernel].
    """
    if len(shape) < 2:
        size = max(1, prod(shape))
        return size, size
    if len(shape) == 2:
        return max(1, shape[0]), max(1, shape[1])
    kernel = prod(shape[2:])
    return max(1, shape[1] * kernel), max(1, shape[0] * kernel)
