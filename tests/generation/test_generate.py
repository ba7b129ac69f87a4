"""Tests generated tokens in all layouts against the model at its exact lengths."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import cache
from itertools import chain
from math import prod
from typing import Any

import numpy as np
import pytest

import popgraph
from popgraph.builder.onnx.write import export_model
from popgraph.builder.pgraph import parse
from popgraph.generation.sampling import Sampling
from popgraph.support.warnings import NoCacheWarning
from tests.generation.models import SIZE, grouped, text

Row = list[int]
PROMPTS: list[Row] = [[3, 1, 4, 1, 5], [7], list(range(38, 2, -1))]

LAYOUTS: dict[str, str] = {
    "cache": text(),
    "positions in the mask": text(positions="mask"),
    "no past": text(past=False, mask=False, positions="shape"),
    "no past, with a mask": text(past=False),
    "fixed batch": text(batch="1"),
    "fixed capacity": text(capacity="130"),
    "use_cache_branch": text(branch=True),
    "shared heads": text(shared=True),
    "table of positions": text(table=128),
    "window": text(window=6),
    "window, fixed capacity": text(window=6, capacity="130"),
    "grouped": grouped(),
    "grouped, fixed capacity": grouped(capacity="130"),
    "grouped, size in the present only": grouped(size="kv_cache_dim"),
}
WITHOUT_CACHE: dict[str, str] = {
    "no mask": text(mask=False),
    "positions by slots": text(positions="shape"),
}
"""Layouts in which padding the cache would change the values."""


@cache
def compiled(model: str) -> popgraph.Runner:
    return popgraph.compile(model)


@cache
def decoder_of(model: str) -> popgraph.Decoder:
    """A decoder of the uncompiled model: its programs return the new keys and values only."""
    return popgraph.Decoder(model)


@cache
def session(model: str) -> Any:
    runtime = pytest.importorskip("onnxruntime", reason="the oracle at exact lengths")
    document = parse(model)
    proto = export_model(document.module, document.weights)
    return runtime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])


def expected_logits(model: str, row: Sequence[int]) -> Any:
    """The logits after a row, computed by onnxruntime without padding and without a past."""
    oracle, length = session(model), len(row)
    capacity = 130 if ", 130, " in model else 0
    mask = [0] * capacity + [1] * length
    every = {
        "input_ids": np.array([row]),
        "attention_mask": np.array([mask]),
        "position_ids": np.arange(length)[None],
        "use_cache_branch": np.array([True]),
    }
    for one in oracle.get_inputs():
        if one.name.startswith("past"):
            every[one.name] = np.zeros((1, one.shape[1], capacity, SIZE), np.float32)
    given = {one.name: every[one.name] for one in oracle.get_inputs()}
    return oracle.run(["logits"], given)[0][0, -1]


def expected(model: str, row: Row, count: int, sampling: Sampling, random: Any) -> Row:
    tokens = list(row)
    for _ in range(count):
        tokens.append(sampling.token(expected_logits(model, tokens), tokens, random))
    return tokens[len(row) :]


def randoms(seed: int | None, count: int) -> list[np.random.Generator]:
    return [np.random.default_rng(one) for one in np.random.SeedSequence(seed).spawn(count)]


def check_tokens(model: str, count: int, seed: int | None = None, **how: Any) -> None:
    found = popgraph.generate(decoder_of(model), PROMPTS, count, seed=seed, **how)
    for row, tokens, random in zip(PROMPTS, found, randoms(seed, 3), strict=True):
        assert tokens.tolist() == expected(model, row, count, Sampling(**how), random)


@pytest.mark.parametrize("name", LAYOUTS)
def test_padding_of_unequal_prompts_changes_no_token(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_tokens(LAYOUTS[name], 12)


@pytest.mark.parametrize("name", WITHOUT_CACHE)
def test_models_sensitive_to_padding_run_without_a_cache(name: str) -> None:
    with pytest.warns(NoCacheWarning, match="the model runs without its cache"):
        check_tokens(WITHOUT_CACHE[name], 12)


@pytest.mark.parametrize("name", ["cache", "no past"])
def test_padding_changes_no_sampled_token(name: str) -> None:
    how = {"temperature": 0.8, "top_k": 20, "top_p": 0.9, "repetition_penalty": 1.2}
    check_tokens(LAYOUTS[name], 12, seed=5, **how)


@pytest.mark.parametrize("name", [*LAYOUTS, "no mask"])
@pytest.mark.filterwarnings("ignore::popgraph.support.warnings.NoCacheWarning")
def test_padding_changes_no_logit(name: str) -> None:
    """A prompt, single tokens, and several tokens after a past."""
    model = {**LAYOUTS, **WITHOUT_CACHE}[name]
    decoder, row = popgraph.Decoder(compiled(model)), []
    for part in ([3, 1, 4, 1, 5], [9], [2], [6, 5, 3], [5]):
        row += part
        found, wanted = decoder.feed(part), expected_logits(model, row)
        assert np.allclose(found, wanted, atol=1e-4 * np.abs(wanted).max())
    assert np.array_equal(decoder.tokens[0], row)


@pytest.mark.parametrize("name", ["cache", "positions in the mask", "use_cache_branch"])
def test_the_cache_is_written_in_place(name: str) -> None:
    """Programs return new keys and values only, and have no memory for a copy of the cache."""
    decoder = popgraph.Decoder(LAYOUTS[name])
    decoder.feed([3, 1, 4])
    decoder.feed([1])
    run, shapes = decoder.run, decoder.run.kept[-1].shapes
    shape = shapes["past_key_values.0.key"]
    assert shapes["input_ids"] == (1, 1) and shape == (1, 4, 128, SIZE)
    program = run.program({one: np.zeros(shapes[one], run.inputs[one].dtype) for one in shapes})
    assert program.outputs["present.0.key"][1] == (1, 4, 1, SIZE)
    assert program.arena < 4 * prod(shape)


def test_256_tokens_take_few_programs() -> None:
    model = popgraph.compile(LAYOUTS["cache"])
    decoder = popgraph.Decoder(model)
    found = list(decoder.stream([3, 1, 4], 256))
    assert len(found) == 256 and len(model.kept) == 2
    by_hand = popgraph.Decoder(model)
    by_hand.feed([3, 1, 4])
    for token in found[:-1]:
        assert by_hand.logits.argmax() == token
        by_hand.feed([token])
    assert by_hand.logits.argmax() == found[-1]
    assert len(model.kept) == 3  # The same programs, and one with a smaller cache.
    assert found[-3:] == expected(LAYOUTS["cache"], [3, 1, 4, *found[:-3]], 3, Sampling(), None)


def test_without_a_cache_the_tokens_are_the_same() -> None:
    model = compiled(LAYOUTS["cache"])
    cached = popgraph.generate(model, PROMPTS, 8)
    whole = popgraph.generate(model, PROMPTS, 8, cache=False)
    assert [one.tolist() for one in cached] == [one.tolist() for one in whole]


def test_the_same_seed_gives_the_same_tokens() -> None:
    model = compiled(LAYOUTS["cache"])
    first, again, other = (
        popgraph.generate(model, [3, 1], 20, temperature=1.0, seed=seed).tolist()
        for seed in (1, 1, 2)
    )
    assert first == again != other


def test_a_stop_sequence_ends_the_text() -> None:
    model = compiled(LAYOUTS["cache"])
    whole = popgraph.generate(model, [3, 1, 4], 12).tolist()
    cut = popgraph.generate(model, [3, 1, 4], 12, stop=[whole[3:5]]).tolist()
    assert cut == whole[:5]
    token = whole[4]
    end = whole.index(token) + 1
    for stop in (token, [token], [[token], [1000, 1001]]):
        assert popgraph.generate(model, [3, 1, 4], 12, stop=stop).tolist() == whole[:end]


def test_a_finished_prompt_changes_no_other() -> None:
    model = compiled(LAYOUTS["cache"])
    whole = [row.tolist() for row in popgraph.generate(model, PROMPTS, 12)]
    stop = whole[0][2]
    cut = [row[: row.index(stop) + 1] if stop in row else row for row in whole]
    assert len(set(map(len, cut))) > 1
    found = popgraph.generate(model, PROMPTS, 12, stop=stop)
    assert [row.tolist() for row in found] == cut


def test_a_stream_yields_tokens_in_order_and_continues() -> None:
    model = compiled(LAYOUTS["cache"])
    decoder = popgraph.Decoder(model)
    found = list(decoder.stream([3, 1, 4], 5))
    assert found == popgraph.generate(model, [3, 1, 4], 5).tolist()
    more = list(decoder.stream([9, 2], 4))
    assert more == popgraph.generate(model, [3, 1, 4, *found, 9, 2], 4).tolist()
    steps = list(popgraph.Decoder(model).stream(PROMPTS, 5))
    whole = popgraph.generate(model, PROMPTS, 5)
    assert [list(row) for row in zip(*steps, strict=True)] == [row.tolist() for row in whole]
    assert all(type(token) is int for token in chain(found, *steps))
    decoder.reset()
    assert list(decoder.stream([3, 1, 4], 5)) == found


def test_no_new_tokens() -> None:
    assert popgraph.generate(compiled(LAYOUTS["cache"]), [3], 0).tolist() == []
