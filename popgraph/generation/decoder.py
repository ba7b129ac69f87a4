"""The decoder: a causal language model, its cache, and the tokens so far."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from popgraph.backends.registry import DEFAULT
from popgraph.generation.sampling import Sampling, Stops
from popgraph.generation.states import (
    CachedState,
    CausalModel,
    DecodingState,
    PaddingDependence,
    PerPromptStates,
    RecomputedState,
)
from popgraph.passes.options import Options
from popgraph.runner import Runner
from popgraph.start import compile
from popgraph.support.argument_types import check_types
from popgraph.support.arrays import Array
from popgraph.support.errors import RunError
from popgraph.support.warnings import NoCacheWarning

RESERVED = 512
"""Tokens that get room in the cache at once; longer texts may end early."""

Prompts: TypeAlias = Any
"""The tokens of a prompt (a list or an array of integers), or a list of several prompts."""


class Decoder:
    """
    A causal language model with the keys and values of its tokens so far.

    `model` is anything that `popgraph.compile` takes or gives. `stream` yields tokens one by one,
    and continues the text so far; `feed` only computes the logits that follow tokens.

        decoder = popgraph.Decoder("model.onnx", max_length=1024)
        for token in decoder.stream(ids, max_new_tokens=100, stop=[2]):
            print(decode([token]), end="")

    `max_length` is the largest number of tokens, prompt included; by default only fixed sizes of
    the model limit it. Without `cache`, all tokens are computed again for each new one.
    """

    @check_types()
    def __init__(
        self,
        model: Any,
        *,
        max_length: int | None = None,
        cache: bool = True,
        threads: int = 1,
        backend: str = DEFAULT,
        options: Options | None = None,
    ) -> None:
        if not isinstance(model, Runner):
            # New keys and values alone come back: they are written into the cache in place.
            options = replace(options or Options(), appended=True)
            model = compile(model, threads=threads, backend=backend, options=options, quick=False)
        self.run: Runner = model
        """The compiled model."""
        if max_length is not None and max_length < 1:
            raise RunError(
                f"max_length is {max_length}", "Decoder", "it must be an integer from 1 on"
            )
        self._model = CausalModel(model, max_length)
        layout = self._model.layout
        self._caches = cache and bool(layout.past)
        self._expected, self._right_aligned = 0, False
        if self._caches and layout.mask is None:
            self._drop_cache("it has past_key_values and no attention_mask")
        self.reset()

    def reset(self) -> None:
        """Forgets all tokens."""
        self._rows: list[list[int]] = []
        self._computed: list[int] = []
        """The number of tokens of each row that the logits follow."""
        self._state: DecodingState | None = None
        self._logits: Array | None = None
        self.is_batch = False
        """Whether the prompts are several."""

    @property
    def logits(self) -> Array:
        """The logits after the last token: [vocabulary], of several prompts [batch, vocabulary]."""
        if self._logits is None:
            raise RunError("no token has been computed yet", "Decoder", "feed(ids) computes logits")
        return self._logits if self.is_batch else self._logits[0]

    @property
    def tokens(self) -> list[Array]:
        """The text of each row so far: prompts and generated tokens."""
        return [np.array(row, np.int64) for row in self._rows]

    def feed(self, ids: Prompts) -> Array:
        """Computes these tokens after those so far: the logits that follow the last one."""
        self._begin(ids, 0)
        self._advance()
        return self.logits

    def stream(
        self,
        ids: Prompts,
        max_new_tokens: int = 20,
        *,
        temperature: float = 0.0,
        top_k: int | None = None,
        top_p: float | None = None,
        repetition_penalty: float = 1.0,
        stop: Any = (),
        seed: int | None = None,
    ) -> Iterator[Any]:
        """
        Yields the tokens that follow a prompt, as soon as each is known; see `generate`.

        With several prompts, it yields lists: a token for each row, None if the row has ended.
        """
        sampling = Sampling(temperature, top_k, top_p, repetition_penalty)
        stops = Stops.of(stop)
        if max_new_tokens < 0 or max_new_tokens != int(max_new_tokens):
            raise RunError(
                f"max_new_tokens is {max_new_tokens}", "generate", "it must be an integer from 0 on"
            )
        self._begin(ids, max_new_tokens)
        return self._stream(int(max_new_tokens), sampling, stops, seed)

    def _stream(
        self, count: int, sampling: Sampling, stops: Stops, seed: int | None
    ) -> Iterator[Any]:
        seeds = np.random.SeedSequence(seed).spawn(len(self._rows))
        generators = [np.random.default_rng(one) for one in seeds]
        starts = [len(row) for row in self._rows]
        is_running = [True] * len(self._rows)
        for _ in range(count):
            logits = self._advance()
            chosen: list[int | None] = [None] * len(is_running)
            for at, row in enumerate(self._rows):
                if is_running[at]:
                    token = sampling.token(logits[at], row, generators[at])
                    row.append(token)
                    chosen[at], is_running[at] = token, not stops.has_ended(row[starts[at] :])
            yield chosen if self.is_batch else chosen[0]
            if not any(is_running):
                return

    def _begin(self, ids: Prompts, new_count: int) -> None:
        """Appends tokens to the rows, after a check of all of them."""
        rows, is_batch = prompts(ids)
        for at, row in enumerate(rows):
            self._model.layout.check(np.array(row), f"ids[{at}]" if is_batch else "ids")
        if self._rows and len(rows) != len(self._rows):
            raise RunError(
                f"{len(rows)} prompts follow {len(self._rows)}",
                "ids",
                "as many as before, or reset() first",
            )
        before = self._rows or [[] for _ in rows]
        joined = [[*old, *new] for old, new in zip(before, rows, strict=True)]
        bound, longest = self._model.bound, max(map(len, joined))
        if bound is not None and longest + new_count > bound:
            raise RunError(
                f"{longest} tokens and {new_count} new ones are more than max_length = {bound}",
                "ids",
                f"at most {bound - longest} new tokens" if longest < bound else "a shorter prompt",
            )
        if self._state is None:
            self.is_batch, self._state = is_batch, self._start(len(rows), longest + new_count)
        self._rows = joined

    def _start(self, batch: int, expected: int) -> DecodingState:
        fixed = self._model.layout.batch
        if fixed not in (None, 1, batch):
            raise RunError(
                f"the model takes {fixed} prompts at a time, not {batch}",
                "ids",
                f"give {fixed} prompts, or export the model with an open batch",
            )
        if fixed == 1 and batch > 1:
            return PerPromptStates([self._start(1, expected) for _ in range(batch)])
        if self._caches:
            self._expected = expected
            return CachedState(
                self._model, batch, min(expected, RESERVED), right_aligned=self._right_aligned
            )
        return RecomputedState(self._model)

    def _advance(self) -> Array:
        """The logits after the last token of each row."""
        try:
            self._logits = self._advanced()
        except BaseException:
            # Only computed tokens stay; the next call computes them again, in a new state.
            rows = [row[:done] for row, done in zip(self._rows, self._computed, strict=False)]
            self._rows, self._state = rows, None
            raise
        self._computed = [len(row) for row in self._rows]
        return self._logits

    def _advanced(self) -> Array:
        assert self._state is not None, "prompts make a state"
        try:
            return self._state.advance(self._rows)
        except PaddingDependence:
            if self._right_aligned:
                self._drop_cache("its numbers depend on where the padding of the cache is")
            self._right_aligned = True
            self._state = self._start(len(self._rows), self._expected)
            return self._advanced()

    def _drop_cache(self, why: str) -> None:
        self._caches = False
        warnings.warn(
            f"the model runs without its cache: {why}, so all tokens are computed again for each "
            "new one\n  try: export it with attention_mask and position_ids",
            NoCacheWarning,
            stacklevel=5,
        )


def prompts(ids: Prompts) -> tuple[list[list[int]], bool]:
    """The tokens of each prompt, and whether there are several."""
    is_batch = isinstance(ids, Sequence | np.ndarray) and len(ids) > 0 and np.ndim(ids[0]) > 0
    rows = list(ids) if is_batch else [ids]
    return [_tokens(row, f"ids[{at}]" * is_batch or "ids") for at, row in enumerate(rows)], is_batch


def _tokens(row: object, where: str) -> list[int]:
    array = np.asarray(row)
    if not array.size:
        raise RunError("the prompt is empty", where, "give it one token at least, such as BOS")
    if array.dtype.kind not in "iu" or array.ndim > 1:
        raise RunError(
            f"a prompt is a list of integers, not {array.dtype}{list(array.shape)}",
            where,
            "encode text with the tokenizer of the model first",
        )
    return [int(token) for token in array.reshape(-1)]
