"""The tokens of a model so far: computed again for each new one, or cached keys and values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias

import numpy as np

from popgraph.generation.layout import Layout
from popgraph.runner import Runner
from popgraph.support.arrays import Array
from popgraph.support.errors import IndicesError, ModelError, RunError, TypeMismatchError

FIRST_BUCKET, GROWTH = 32, 4
"""
Lengths are padded to 32, 128, 512, ...: each is a program, which takes seconds to compile.

Padding costs at most four times the work of the positions, which weights dominate for one token.
"""
FIRST_CAPACITY = 128
"""A cache that begins here grows once in 256 tokens after a short prompt."""

Rows: TypeAlias = Sequence[Sequence[int]]
"""All tokens of each prompt so far."""


class PaddingDependence(Exception):
    """The logits of this model depend on where the padding is."""


class DecodingState(Protocol):
    """The tokens so far, as a model keeps them."""

    def advance(self, rows: Rows) -> Array:
        """The logits after the last token of each row: [batch, vocabulary], in float64."""


class CausalModel:
    """A compiled model of a known layout."""

    def __init__(self, runner: Runner, max_length: int | None) -> None:
        self.runner = runner
        self.layout = layout = Layout.of(runner.inputs, runner.outputs)
        fixed = layout.capacity if layout.past else layout.length
        self.bound = min((one for one in (max_length, fixed) if one is not None), default=None)
        """The largest number of tokens, new ones included."""
        self.positions: int | None = None
        """The largest number of positions, padding included, if larger ones ended in errors."""
        self._repeats = False
        """Whether the same run gives the same logits again."""

    def bucket(self, length: int, first: int = FIRST_BUCKET, *, others: int = 0) -> int:
        """The padded length for this number of tokens, beside other positions."""
        size = first
        while size < length:
            size *= GROWTH
        bounds = self.bound, None if self.positions is None else self.positions - others
        return max(length, min([size, *(one for one in bounds if one is not None)]))

    def reduce_padding(self, size: int, needed: int) -> bool:
        """
        Whether less padding can help after an error at `size` positions.

        Tables of positions mostly have a power of two of them.
        """
        if size <= needed:
            return False
        self.positions = max(needed, 1 << ((size - 1).bit_length() - 1))
        return True

    def run(
        self, ids: Array, counts: Array, past: dict[str, Array], before: Array, starts: Array
    ) -> dict[str, Array]:
        """
        One run, padded on the right: `counts` of the new tokens of each row are real.

        Row b has `before[b]` cached tokens, from slot `starts[b]` of the past on.
        """
        width = ids.shape[1]
        slot_count = next(iter(past.values())).shape[2] if past else 0
        slots, new = np.arange(slot_count), np.arange(width)
        cached = (slots >= starts[:, None]) & (slots < (starts + before)[:, None])
        mask = np.concatenate([cached, new < counts[:, None]], axis=1)
        # Padding repeats the last position: tables of positions may end there.
        positions = before[:, None] + np.minimum(new, np.maximum(counts - 1, 0)[:, None])
        inputs = self.layout.inputs(ids, mask, positions, past)
        try:
            outputs = self.runner(inputs)
            self._check_repetition(inputs, outputs)
        except IndicesError as error:
            hint = "set max_length to the size of the table of positions, or give other tokens"
            raise IndicesError(error.what, error.where, hint) from error
        logits = outputs[self.layout.logits.name]
        if logits.shape[:2] != ids.shape:
            raise ModelError(
                f"the logits have shape {list(logits.shape)} for tokens of shape {list(ids.shape)}",
                f"output {self.layout.logits.name!r}",
                "export the model with logits of all positions",
            )
        return outputs

    def _check_repetition(self, inputs: dict[str, Array], outputs: dict[str, Array]) -> None:
        """ModelError if the same run again gives other logits."""
        name = self.layout.logits.name
        if not self._repeats and self.runner.program(inputs).variables:
            again = self.runner(inputs)[name]
            if not np.array_equal(again, outputs[name], equal_nan=True):
                raise ModelError(
                    "the logits differ from run to run: the model draws random numbers",
                    f"output {name!r}",
                    "export it for inference: model.eval() leaves Dropout out",
                )
        self._repeats = True

    def last_logits(self, outputs: dict[str, Array], counts: Array) -> Array:
        """The logits at the last real position of each row."""
        logits = outputs[self.layout.logits.name]
        found: Array = logits[np.arange(len(counts)), np.maximum(counts - 1, 0)]
        return found.astype(np.float64)

    def is_close(self, one: Array, other: Array) -> bool:
        """
        Whether logits that were computed in another order differ by rounding only.

        The bounds are relative to their spread: rounding in f32 stays far below, in f16 near 1e-2.
        """
        dtype = (self.layout.past or (self.layout.logits,))[0].dtype
        bound = 5e-2 if dtype is not None and dtype.itemsize < 4 else 1e-3
        return not np.abs(one - other).max() > bound * np.ptp(one)  # NaN is left to sampling.


def padded(rows: Rows, width: int, token: int = 0) -> Array:
    """Rows of one length, padded on the right."""
    found = np.full((len(rows), width), token, np.int64)
    for at, row in enumerate(rows):
        found[at, : len(row)] = row
    return found


class RecomputedState:
    """All tokens run again for each new one. Padding on the right is exact in a causal model."""

    def __init__(self, model: CausalModel) -> None:
        self.model = model
        self._is_causal = model.layout.mask is not None
        """With a mask, padding is hidden in any model."""

    def advance(self, rows: Rows) -> Array:
        """The logits after the last token of each row."""
        counts = np.array([len(row) for row in rows])
        longest = int(counts.max())
        width = self.model.layout.length or self.model.bucket(longest)
        try:
            logits = self._logits(rows, counts, width, 0)
        except (IndicesError, TypeMismatchError):
            if self.model.layout.length or not self.model.reduce_padding(width, longest):
                raise
            return self.advance(rows)
        if not self._is_causal and (counts < width).any():
            last = (self.model.layout.vocabulary or max(map(max, rows)) + 1) - 1
            again = self._logits(rows, counts, width, last)
            if not self.model.is_close(logits, again):
                raise ModelError(
                    "the model is not causal: later tokens change the logits of earlier ones",
                    f"output {self.model.layout.logits.name!r}",
                    "only causal language models generate text token by token",
                )
            self._is_causal = True
        return logits

    def _logits(self, rows: Rows, counts: Array, width: int, token: int) -> Array:
        none = np.zeros(len(rows), np.int64)
        past = self.model.layout.empty(len(rows), 0)
        outputs = self.model.run(padded(rows, width, token), counts, past, none, none)
        return self.model.last_logits(outputs, counts)


class CachedState:
    """
    New tokens run over the cached keys and values of those before them.

    The cache is an array with room for more tokens than it has: masked slots do not change
    results, and a new token is written into the next one. Positions are explicit, or the model
    counts them in the mask; that it does not count slots is checked on the first tokens.

    With `right_aligned`, tokens move so that the last one is in the last slot: the distance of
    slots is that of tokens, as windows of attention need it, for a copy of the cache per token.
    """

    def __init__(
        self,
        model: CausalModel,
        batch: int,
        expected: int,
        *,
        checked: bool = False,
        right_aligned: bool = False,
    ) -> None:
        self.model, self.expected, self.right_aligned = model, expected, right_aligned
        """`expected` tokens get room at once."""
        self.lengths = np.zeros(batch, np.int64)
        """The number of cached tokens of each row."""
        self.capacity = model.layout.capacity or 0
        self.arrays = model.layout.empty(batch, self.capacity)
        self._logits: Array | None = None
        self._counts_positions = checked or not (right_aligned or model.layout.positions is None)
        self._checked: set[tuple[int, int]] = set()
        self._in_place: bool | None = None
        """Whether the model writes new keys into the past (GroupQueryAttention), not after it."""

    def advance(self, rows: Rows) -> Array:
        """The logits after the last token of each row; PaddingDependence if a check fails."""
        if not self._counts_positions:
            self._check_positions([list(row) * (3 - min(len(row), 2)) for row in rows])
        while any(new := [row[int(n) :] for row, n in zip(rows, self.lengths, strict=True)]):
            self._step(new)
        assert self._logits is not None, "prompts have tokens"
        return self._logits

    def _check_positions(self, rows: Rows) -> None:
        """Compares a run of a token after cached ones with a run of all together."""
        made = [
            CachedState(
                self.model, len(rows), self.expected, checked=True, right_aligned=self.right_aligned
            )
            for _ in range(2)
        ]
        made[0].advance([row[:-1] for row in rows])
        if not self.model.is_close(made[1].advance(rows), made[0].advance(rows)):
            raise PaddingDependence
        self._counts_positions = True

    def _step(self, new: Rows) -> None:
        """Runs as many of the new tokens as one run takes."""
        layout, first = self.model.layout, not self.lengths.any()
        # GroupQueryAttention counts back from the end of the mask: no padding after a past.
        most = layout.length or (1 if self._in_place is not False and not first else None)
        new = [row[:most] for row in new]
        counts = np.array([len(row) for row in new])
        longest, total = int(counts.max()), int((self.lengths + counts).max())
        cached, width = int(self.lengths.max()), layout.length or 1
        if longest > 1 and not layout.length:
            width = self.model.bucket(longest, others=self.capacity)
        if not first or layout.capacity:
            # A free slot shows whether the model is an in-place one.
            shows = self._in_place is None and self.model.positions is None
            self._reserve(total if layout.capacity or shows else cached, width)
        ids = padded(new, width)
        try:
            outputs = self._run(ids, counts)
        except (IndicesError, TypeMismatchError):
            size, fixed = self.capacity + width, layout.length or layout.capacity
            if fixed or not self.model.reduce_padding(size, cached + longest):
                raise
            if self.capacity:
                self._resize(cached, width)
            self._step(new)
            return
        logits = self.model.last_logits(outputs, counts)
        self._reserve(total, width)
        self._store(outputs, counts, width)
        before = logits if self._logits is None else self._logits
        self._logits = np.where(counts[:, None] > 0, logits, before)

    @property
    def _starts(self) -> Array:
        """The slot of the first token of each row."""
        return self.capacity - self.lengths if self.right_aligned else np.zeros_like(self.lengths)

    def _run(self, ids: Array, counts: Array) -> dict[str, Array]:
        outputs = self.model.run(ids, counts, self.arrays, self.lengths, self._starts)
        if not self.capacity or self.right_aligned:
            return outputs
        if self._in_place is None:
            row, (name, array) = int(counts.argmax()), next(iter(self.arrays.items()))
            at, made = int(self.lengths[row]), outputs[_present(name)]
            self._in_place = at < self.capacity <= made.shape[2] and bool(
                (made[row, :, at] != array[row, :, at]).any()
            )
        program = ids.shape[1], self.capacity
        if self._in_place or not self.lengths.any() or program in self._checked:
            return outputs
        self._checked.add(program)
        # The distance between slots matters in a model with windows of attention.
        starts = self.capacity - self.lengths
        moved = {
            name: np.stack([np.roll(*pair, axis=1) for pair in zip(array, starts, strict=True)])
            for name, array in self.arrays.items()
        }
        again = self.model.run(ids, counts, moved, self.lengths, starts)
        if not self.model.is_close(
            *(self.model.last_logits(one, counts) for one in (outputs, again))
        ):
            raise PaddingDependence
        return outputs

    def _reserve(self, needed: int, width: int) -> None:
        """Grows the cache if it has less room than needed, beside new tokens of some width."""
        if needed <= self.capacity:
            return
        if self.model.layout.capacity:
            raise RunError(
                f"{needed} tokens do not fit in the cache of {self.capacity}",
                f"input {self.model.layout.past[0].name!r}",
                "the model was exported for so many; fewer tokens, or an export of open size",
            )
        self._resize(needed, width)

    def _resize(self, needed: int, width: int) -> None:
        """Moves the cache into arrays with more room than needed, or with less than before."""
        before, kept = self.arrays, int(self.lengths.max())
        size = self.model.bucket(max(needed, self.expected), FIRST_CAPACITY)
        if self.model.positions is not None:
            size = max(needed, min(size, self.model.positions - width))
        self.capacity = size
        self.arrays = self.model.layout.empty(len(self.lengths), size)
        for name, array in before.items():
            old, new = (array.shape[2] - kept, size - kept) if self.right_aligned else (0, 0)
            self.arrays[name][:, :, new : new + kept] = array[:, :, old : old + kept]

    def _store(self, outputs: dict[str, Array], counts: Array, width: int) -> None:
        """Copies the new keys and values into the cache."""
        for name, array in self.arrays.items():
            made = outputs[_present(name)]
            after = made.shape[2] - width
            for row, (start, count) in enumerate(zip(self.lengths, counts, strict=True)):
                source = start if self._in_place else after
                if self.right_aligned:
                    array[row, :, : self.capacity - count] = array[row, :, count:]
                    start = self.capacity - count
                array[row, :, start : start + count] = made[row, :, source : source + count]
        self.lengths = self.lengths + counts


class PerPromptStates:
    """A state for each row, in a model that takes one prompt at a time."""

    def __init__(self, states: Sequence[DecodingState]) -> None:
        self.states = states

    def advance(self, rows: Rows) -> Array:
        """The logits after the last token of each row."""
        made = zip(self.states, rows, strict=True)
        return np.concatenate([state.advance([row]) for state, row in made])


def _present(name: str) -> str:
    return name.replace("past_key_values", "present", 1)
