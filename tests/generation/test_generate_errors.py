"""Tests the error messages of `generate` and `Decoder`."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

import popgraph
from popgraph.support.errors import IndicesError, ModelError, PopgraphError, RunError
from tests.generation.models import text


@cache
def model() -> popgraph.Runner:
    return popgraph.compile(text(past=False, mask=False, positions="shape"))


CALLS: dict[str, tuple[Any, dict[str, Any], str]] = {
    "empty prompt": (
        [],
        {},
        "the prompt is empty\n  at: ids\n  try: give it one token at least, such as BOS",
    ),
    "empty prompt of several": (
        [[1], []],
        {},
        "the prompt is empty\n  at: ids[1]\n  try: give it one token at least, such as BOS",
    ),
    "no such token": (
        [3, 40],
        {},
        "token 40 is outside the vocabulary\n  at: ids[1]\n  try: tokens are integers from 0 to 39",
    ),
    "negative token": (
        [[1], [3, -1]],
        {},
        "token -1 is outside the vocabulary\n  at: ids[1][1]\n"
        "  try: tokens are integers from 0 to 39",
    ),
    "floats": (
        [1.0, 2.0],
        {},
        "a prompt is a list of integers, not float64[2]\n  at: ids\n"
        "  try: encode text with the tokenizer of the model first",
    ),
    "text": (
        "Hello",
        {},
        "a prompt is a list of integers, not <U5[]\n  at: ids\n"
        "  try: encode text with the tokenizer of the model first",
    ),
    "negative number of tokens": (
        [1],
        {"max_new_tokens": -1},
        "max_new_tokens is -1\n  at: generate\n  try: it must be an integer from 0 on",
    ),
    "half a token": (
        [1],
        {"max_new_tokens": 1.5},
        "max_new_tokens is 1.5\n  at: generate\n  try: it must be an integer from 0 on",
    ),
    "negative temperature": (
        [1],
        {"temperature": -1},
        "temperature is -1\n  at: generate\n  try: it must be a number from 0 on",
    ),
    "top_p of 0": (
        [1],
        {"top_p": 0},
        "top_p is 0\n  at: generate\n  try: it must be above 0 and at most 1",
    ),
    "top_p above 1": (
        [1],
        {"top_p": 1.5},
        "top_p is 1.5\n  at: generate\n  try: it must be above 0 and at most 1",
    ),
    "top_k of 0": (
        [1],
        {"top_k": 0},
        "top_k is 0\n  at: generate\n"
        "  try: it must be an integer from 1 on, or None for all tokens",
    ),
    "no penalty": (
        [1],
        {"repetition_penalty": 0},
        "repetition_penalty is 0\n  at: generate\n  try: it must be a number above 0",
    ),
    "text as a stop": (
        [1],
        {"stop": ["."]},
        "'.' is neither a token nor a sequence of tokens\n  at: stop\n"
        "  try: stop=2, or a list such as stop=[2, [13, 13]]",
    ),
    "no length": (
        [1],
        {"max_length": 0},
        "max_length is 0\n  at: Decoder\n  try: it must be an integer from 1 on",
    ),
    "long prompt": (
        [1, 2, 3, 4],
        {"max_length": 3},
        "4 tokens and 20 new ones are more than max_length = 3\n  at: ids\n  try: a shorter prompt",
    ),
    "long text": (
        [1, 2],
        {"max_length": 8},
        "2 tokens and 20 new ones are more than max_length = 8\n  at: ids\n"
        "  try: at most 6 new tokens",
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_wrong_arguments_are_refused(name: str) -> None:
    ids, given, message = CALLS[name]
    with pytest.raises(RunError) as error:
        popgraph.generate(model(), ids, **given)
    assert str(error.value) == message


def test_a_model_of_another_layout_is_refused() -> None:
    network = "graph net(x: f32[N, 3]) -> y {\n y = Relu(x)\n}\n"
    with pytest.raises(ModelError) as error:
        popgraph.Decoder(network)
    assert str(error.value) == (
        "the model is not a causal language model of a known layout\n"
        "  at: inputs x: f32[N, 3]; outputs y: f32[N, 3]\n"
        "  try: a causal language model has input_ids [batch, length], and may have "
        "attention_mask, position_ids, use_cache_branch, past_key_values.N.key and .value [batch, "
        "heads, past, size]; it gives logits [batch, length, vocabulary], and present.N.key and "
        ".value"
    )


def test_a_vocabulary_of_unknown_size() -> None:
    """The model's own index check finds tokens outside of its vocabulary."""
    network = "graph bigrams(tokens: i64[N, L], table: f32[40, V]) -> y {\n y = table[tokens]\n}\n"
    with pytest.raises(ModelError, match="not a causal language model of a known layout"):
        popgraph.Decoder(network)
    network = text(past=False, mask=False, positions="shape", logits="NonZeroLogits")
    network = network.replace(
        "NonZeroLogits", "Gather(h @ head, Squeeze(NonZero(words[:, 0]), [0]), axis=2)"
    )
    with pytest.raises(PopgraphError) as error:
        popgraph.generate(network, [1, 40])
    assert "40" in str(error.value)
    decoder = popgraph.Decoder(network)
    before = decoder.feed([1, 2])
    with pytest.raises(PopgraphError):
        decoder.feed([40])
    decoder.feed([3])
    assert decoder.tokens[0].tolist() == [1, 2, 3] and before.shape == (40,)


def test_a_model_that_is_not_causal_is_refused() -> None:
    network = text(past=False, mask=False, positions="shape").replace(
        "distance >= 0", "distance < 99"
    )
    with pytest.raises(ModelError) as error:
        popgraph.generate(network, [1, 2])
    assert str(error.value) == (
        "the model is not causal: later tokens change the logits of earlier ones\n"
        "  at: output 'logits'\n"
        "  try: only causal language models generate text token by token"
    )


def test_the_number_of_prompts_must_not_change() -> None:
    decoder = popgraph.Decoder(model())
    with pytest.raises(RunError, match="no token has been computed yet"):
        _ = decoder.logits
    decoder.feed([[1], [2]])
    with pytest.raises(RunError) as error:
        decoder.feed([1])
    assert str(error.value) == (
        "1 prompts follow 2\n  at: ids\n  try: as many as before, or reset() first"
    )


def test_a_model_with_a_fixed_batch_refuses_other_prompts() -> None:
    with pytest.raises(RunError) as error:
        popgraph.generate(text(past=False, mask=False, positions="shape", batch="2"), [1])
    assert str(error.value) == (
        "the model takes 2 prompts at a time, not 1\n  at: ids\n"
        "  try: give 2 prompts, or export the model with an open batch"
    )


def test_nan_logits_are_refused() -> None:
    with pytest.raises(PopgraphError, match="the largest logit is nan: no token can be chosen"):
        popgraph.generate(
            text(past=False, mask=False, positions="shape", logits="(h @ head) * nan"), [1]
        )


def test_a_refused_call_leaves_the_decoder_unchanged() -> None:
    decoder = popgraph.Decoder(model())
    before = decoder.feed([1, 2])
    with pytest.raises(RunError):
        decoder.feed([99])
    assert np.array_equal(decoder.logits, before) and len(decoder.tokens[0]) == 2


def test_a_text_longer_than_the_table_of_positions_is_refused() -> None:
    network = text(past=False, mask=False, positions="shape").replace("f32[512,", "f32[20,")
    assert len(popgraph.generate(network, [1, 2, 3], 5)) == 5
    with pytest.raises(IndicesError) as error:
        popgraph.generate(network, list(range(21)), 1)
    assert str(error.value) == (
        "index 20 is out of range: -20 to 19 are legal\n  at: node 'e/4' (Gather)\n"
        "  try: set max_length to the size of the table of positions, or give other tokens"
    )
    assert len(popgraph.generate(network, [1, 2, 3], 17, max_length=20)) == 17


def test_a_model_exported_for_training_is_refused() -> None:
    """Dropout stays active in a module exported without `eval()`."""
    network = text(past=False, logits="Dropout(h, 0.5, true) @ head")
    with pytest.raises(ModelError) as error:
        popgraph.generate(network, [1, 2])
    assert str(error.value) == (
        "the logits differ from run to run: the model draws random numbers\n"
        "  at: output 'logits'\n"
        "  try: export it for inference: model.eval() leaves Dropout out"
    )
