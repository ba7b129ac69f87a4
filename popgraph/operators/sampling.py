"""Where along an axis the elements of a resized tensor are sampled, and with what weights."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Numbers: TypeAlias = NDArray[np.float64]
Places: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True)
class Stretch:
    """How one axis becomes longer or shorter."""

    before: int
    after: int
    scale: float
    width: float
    """The size that it has after, before scales of broken numbers are rounded down to a whole."""
    start: float | np.floating = 0.0
    end: float | np.floating = 1.0
    """
    The region of interest, from 0, the first element, to 1, the last one.

    In the precision in which the model gives it, since that of ONNX's reference follows it.
    """

    @property
    def is_nothing(self) -> bool:
        """Whether every element keeps its place, as ONNX's reference decides it."""
        whole = math.isclose(self.start, 0.0) and math.isclose(self.end, 1.0)
        return whole and self.before == self.after and math.isclose(self.scale, 1.0)

    @property
    def growth(self) -> float:
        """How many elements there are after for one before."""
        return self.after / max(1, self.before)

    def coordinates(self, mode: str) -> Numbers:
        """Where each element comes from, in double precision, as in ONNX's reference."""
        last, places = self.before - 1, np.arange(self.after, dtype=np.float64)
        match mode:
            case "half_pixel":
                return (places + 0.5) / self.scale - 0.5
            case "half_pixel_symmetric":
                offset = self.before / 2 * (1 - self.after / self.width)
                return offset + (places + 0.5) / self.scale - 0.5
            case "pytorch_half_pixel":
                # For one element ONNX's text says 0, and its reference -0.5.
                return (places + 0.5) / self.scale - 0.5 if self.width > 1 else 0 * places
            case "align_corners":
                return places * last / (self.width - 1) if self.width > 1 else 0 * places
            case "asymmetric":
                return places / self.scale
            case "tf_half_pixel_for_nn":
                return (places + 0.5) / self.scale
            case "tf_crop_and_resize":
                span = self.end - self.start
                if self.width > 1:
                    return self.start * last + places * span * last / (self.width - 1)
                return self.start * last + (0 * places + span * last / 2)
        raise AssertionError(f"there are no coordinates {mode}")

    def outside(self, mode: str) -> NDArray[np.bool_]:
        """Which elements come from outside the tensor, and are extrapolated."""
        at = self.coordinates(mode)
        return (at < 0) | (at > self.before - 1)

    def nearest(self, mode: str, rounding: str) -> Places:
        """The places from which elements are taken as they are."""
        at = self.coordinates(mode)
        if rounding in ("simple", "pytorch"):
            # Version 10 does not say; ONNX's tests of that time and onnxruntime go the simple way.
            at = (np.arange(self.after, dtype=np.float32) / np.float32(self.scale)).astype(float)
            rounding = "ceil" if self.scale < 1 and rounding == "simple" else "floor"
        whole = np.floor(at)
        part = at - whole
        up = {
            "floor": part >= 1,
            "ceil": part > 0,
            "round_prefer_floor": part > 0.5,
            "round_prefer_ceil": part >= 0.5,
        }[rounding]
        places: Places = np.clip(whole + up, 0, self.before - 1).astype(np.int64)
        return places


@dataclass(frozen=True)
class Filter:
    """The function whose values are weights: of the distance to where an element comes from."""

    cubic: bool
    antialias: bool = False
    a: float = -0.75
    exclude_outside: bool = False

    def __call__(self, distance: Numbers) -> Numbers:
        x = np.abs(distance)
        a = self.a
        near = ((a + 2) * x - (a + 3)) * x * x + 1
        far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
        linear: Numbers = np.maximum(1 - x, 0)
        return np.where(x <= 1, near, np.where(x < 2, far, 0.0)) if self.cubic else linear


@dataclass(frozen=True)
class Taps:
    """The places of which each element is a weighted sum, as many for all of them."""

    places: Places
    weights: Numbers

    @property
    def count(self) -> int:
        return int(self.places.shape[1])

    def within(self, size: int) -> Taps:
        """Those outside an axis moved to its ends."""
        return Taps(np.clip(self.places, 0, size - 1), self.weights)

    def condensed(self) -> Taps:
        """
        The same sums over fewer places: none twice, and none whose weight is 0.

        So what is beside an element that is taken as it is, infinite perhaps, has no part in it.
        Shorter sums take their last place several times, each with a part of its weight.
        """
        rows = [_joined(*row) for row in zip(self.places, self.weights, strict=True)]
        count = max((len(places) for places, _ in rows), default=1)
        filled = [_filled(*row, count) for row in rows]
        return Taps(
            np.array([places for places, _ in filled], np.int64).reshape(-1, count),
            np.array([weights for _, weights in filled], np.float64).reshape(-1, count),
        )


def _joined(places: Places, weights: Numbers) -> tuple[Places, Numbers]:
    kept, which = np.unique(places, return_inverse=True)
    sums = np.bincount(which, weights, len(kept))
    some = sums != 0 if sums.any() else kept == kept[0]
    return kept[some], sums[some]


def _filled(places: Places, weights: Numbers, count: int) -> tuple[Places, Numbers]:
    more = count - len(places)
    divided = np.append(weights[:-1], weights[-1] / (more + 1))
    return np.pad(places, (0, more), mode="edge"), np.pad(divided, (0, more), mode="edge")


def taps(axis: Stretch, mode: str, filter_: Filter) -> Taps:
    """The weighted places of each element; some may be outside the tensor."""
    at = axis.coordinates(mode)
    # Antialiasing makes the filter of an axis that shrinks wider.
    shrinking = min(axis.scale, 1.0) if filter_.antialias else 1.0
    reach = math.floor(-(2 if filter_.cubic else 1) / shrinking) + 1
    left = np.ceil(at) - 1  # of an element that comes from a whole place, the one before
    places = left.astype(np.int64)[:, None] + np.arange(reach, 2 - reach)
    weights = filter_(shrinking * (places - at[:, None]))
    if filter_.antialias:
        weights = weights / weights.sum(axis=1, keepdims=True)
    if filter_.exclude_outside:
        weights = np.where((places < 0) | (places >= axis.before), 0, weights)
        total = weights.sum(axis=1, keepdims=True)
        weights = weights / np.where(total == 0, 1, total)
    return Taps(places, weights)
