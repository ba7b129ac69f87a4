"""The layout of a causal language model: the roles of its inputs and outputs, by name and shape."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from popgraph.support.arrays import Array
from popgraph.support.description import TensorSpec
from popgraph.support.errors import ModelError, RunError

PAST = re.compile(r"past_key_values\.(\d+\.(?:key|value))")
EXPECTED = (
    "a causal language model has input_ids [batch, length], and may have attention_mask, "
    "position_ids, use_cache_branch, past_key_values.N.key and .value [batch, heads, past, size]; "
    "it gives logits [batch, length, vocabulary], and present.N.key and .value"
)


@dataclass(frozen=True)
class Layout:
    """
    The inputs and outputs of a causal language model.

    The exporters of transformers and onnxruntime-genai use these names. Tokens may have any
    name if they are the only other input, logits if they are the only other output.
    """

    ids: TensorSpec
    logits: TensorSpec
    mask: TensorSpec | None
    positions: TensorSpec | None
    branch: TensorSpec | None
    """Whether the past is used, in models that have a branch without it."""
    past: tuple[TensorSpec, ...]
    present: tuple[str, ...]

    @staticmethod
    def of(inputs: Mapping[str, TensorSpec], outputs: Mapping[str, TensorSpec]) -> Layout:
        """The layout of a model with these inputs and outputs; ModelError if it is none."""
        past = tuple(
            _completed(spec, outputs.get(PAST.sub(r"present.\1", name)))
            for name, spec in inputs.items()
            if PAST.fullmatch(name)
        )
        present = tuple(PAST.sub(r"present.\1", spec.name) for spec in past)
        named = {"attention_mask", "position_ids", "use_cache_branch", *(one.name for one in past)}
        ids = _chosen("input_ids", [spec for name, spec in inputs.items() if name not in named])
        logits = _chosen(
            "logits", [spec for name, spec in outputs.items() if not name.startswith("present.")]
        )
        wrong = (
            ids is None
            or logits is None
            or not _is_array(ids, 2, "iu")
            or not _is_array(logits, 3, "fV")
            or any(name not in outputs for name in present)
            or not all(_is_past(spec) for spec in past)
            or bool(inputs.keys() - named - {ids.name})
        )
        if wrong or ids is None or logits is None:
            raise ModelError(
                "the model is not a causal language model of a known layout",
                f"inputs {_listed(inputs.values())}; outputs {_listed(outputs.values())}",
                EXPECTED,
            )
        mask, positions, branch = (
            inputs.get(name) for name in ("attention_mask", "position_ids", "use_cache_branch")
        )
        return Layout(ids, logits, mask, positions, branch, past, present)

    @property
    def batch(self) -> int | None:
        """The only number of prompts that the model takes; None if it takes any."""
        return _size(self.ids, 0)

    @property
    def length(self) -> int | None:
        """The only number of new tokens that a run takes; None if it takes any."""
        return _size(self.ids, 1)

    @property
    def capacity(self) -> int | None:
        """The only number of cached tokens that a run takes; None if it takes any."""
        return _size(self.past[0], 2) if self.past else None

    @property
    def vocabulary(self) -> int | None:
        """The number of tokens that exist, if the model says it."""
        return _size(self.logits, 2)

    def check(self, tokens: Array, where: str) -> None:
        """RunError for tokens outside the vocabulary."""
        bound = self.vocabulary
        outside = np.flatnonzero((tokens < 0) | (tokens >= (bound or np.inf)))
        if len(outside):
            raise RunError(
                f"token {tokens[outside[0]]} is outside the vocabulary",
                f"{where}[{outside[0]}]",
                f"tokens are integers from 0 to {bound - 1}" if bound else "tokens begin at 0",
            )

    def empty(self, batch: int, capacity: int) -> dict[str, Array]:
        """Zeros for the keys and values of `capacity` tokens."""
        return {
            spec.name: np.zeros((batch, _known(spec, 1), capacity, _known(spec, 3)), spec.dtype)
            for spec in self.past
        }

    def inputs(
        self, ids: Array, mask: Array, positions: Array, past: Mapping[str, Array]
    ) -> dict[str, Array]:
        """The arrays of a run, by the names and in the element types of the model."""
        found = {**past, self.ids.name: ids.astype(self.ids.dtype)}
        for spec, array in ((self.mask, mask), (self.positions, positions)):
            if spec is not None:
                found[spec.name] = array.astype(spec.dtype)
        if self.branch is not None:
            # The branch with a past runs on an empty or a masked one, too: one program less.
            found[self.branch.name] = np.ones(1, self.branch.dtype)
        return found


def _chosen(name: str, specs: list[TensorSpec]) -> TensorSpec | None:
    """The one of this name, or the only one."""
    named = [spec for spec in specs if spec.name == name] or specs
    return named[0] if len(named) == 1 else None


def _completed(past: TensorSpec, present: TensorSpec | None) -> TensorSpec:
    """The past with sizes of heads that only the present states, as in onnxruntime-genai 0.18."""
    shape, known = past.shape, present.shape if present else None
    if shape is None or known is None or len(shape) != 4 or len(known) != 4:
        return past
    sizes = [
        known[axis] if axis in (1, 3) and not isinstance(size, int) else size
        for axis, size in enumerate(shape)
    ]
    return replace(past, shape=tuple(sizes))


def _is_array(spec: TensorSpec, rank: int, kinds: str) -> bool:
    if spec.dtype is None or spec.shape is None:
        return False
    return spec.dtype.kind in kinds and len(spec.shape) == rank


def _is_past(spec: TensorSpec) -> bool:
    return _is_array(spec, 4, "fV") and None not in (_size(spec, 1), _size(spec, 3))


def _size(spec: TensorSpec, axis: int) -> int | None:
    size = spec.shape[axis] if spec.shape else None
    return size if isinstance(size, int) else None


def _known(spec: TensorSpec, axis: int) -> int:
    size = _size(spec, axis)
    assert size is not None, "a past of unknown sizes has no layout"
    return size


def _listed(specs: Iterable[TensorSpec]) -> str:
    found = list(map(str, specs))
    more = f" and {len(found) - 6} more" if len(found) > 6 else ""
    return (", ".join(found[:6]) or "none") + more
