"""Samples of onnxruntime's operators that run a decoder until its text ends."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import GraphProto, numpy_helper, parser

from popgraph.support.arrays import Array
from tests.dialects.contrib_sample import Sample, draw_ints, ints

TOKENS, PAD = 11, 10
SEED = 6
"""Seed of a decoder whose sequences end early."""


def decoder() -> GraphProto:
    """One layer of attention with two heads, over embeddings of tokens and positions."""
    graph = parser.parse_graph(
        """
        decoder (int32[B, S] input_ids, int32[B, S] position_ids, int32[B, T] attention_mask,
                 float[2, B, 2, Q, 3] past_0)
            => (float[B, S, 11] logits, float[2, B, 2, T, 3] present_0) {
          word = Gather (words, input_ids)
          place = Gather (places, position_ids)
          x = Add (word, place)
          by_head = Constant <value_ints = [0, 0, 2, 3]> ()
          split = Reshape (x, by_head)
          heads = Transpose <perm = [0, 2, 1, 3]> (split)
          first = Constant <value_ints = [0]> ()
          new = Unsqueeze (heads, first)
          both = Concat <axis = 0> (new, new)
          present_0 = Concat <axis = 3> (past_0, both)
          zero = Constant <value_int = 0> ()
          keys = Gather <axis = 0> (present_0, zero)
          turned = Transpose <perm = [0, 1, 3, 2]> (keys)
          scores = MatMul (heads, turned)
          seen = Cast <to = 1> (attention_mask)
          one = Constant <value_float = 1.0> ()
          far = Constant <value_float = 10000.0> ()
          less = Sub (seen, one)
          hidden = Mul (less, far)
          middle = Constant <value_ints = [1, 2]> ()
          mask = Unsqueeze (hidden, middle)
          masked = Add (scores, mask)
          shares = Softmax <axis = -1> (masked)
          mixed = MatMul (shares, keys)
          back = Transpose <perm = [0, 2, 1, 3]> (mixed)
          as_before = Constant <value_ints = [0, 0, 6]> ()
          joined = Reshape (back, as_before)
          y = Add (joined, x)
          logits = MatMul (y, weights)
        }
        """
    )
    random, sizes = np.random.default_rng(SEED), {"words": 1, "places": 0.5, "weights": 1}
    shapes = {"words": (TOKENS, 6), "places": (32, 6), "weights": (6, TOKENS)}
    graph.initializer.extend(
        numpy_helper.from_array((size * random.standard_normal(shapes[name])).astype("f4"), name)
        for name, size in sizes.items()
    )
    return graph


def greedy(length: int, *more: Array | None, end: int = -1, **attributes: Any) -> Sample:
    """Greedy search of two sequences up to `length` tokens; the second begins with padding."""
    ids = np.array([[1, 2, 3], [PAD, 4, 5]], np.int32)
    held = {"decoder": decoder(), "pad_token_id": PAD, "eos_token_id": end, **attributes}
    return Sample("GreedySearch", [ids, ints(length), *more], ["y"], held)


def searches() -> list[Sample]:
    penalty, mask = np.array([5.0], np.float32), np.array([[0, 1, 1], [1, 1, 1]], np.int32)
    allowed, first = draw_ints(2, TOKENS), draw_ints(2, 2, TOKENS)
    allowed[3] = first[:, 3] = 1
    return [
        greedy(9),
        greedy(4),
        greedy(9, None, penalty),
        greedy(9, no_repeat_ngram_size=2),
        greedy(9, None, None, allowed, first),
        greedy(9, None, None, None, None, mask),
        greedy(9, ints(9), end=1),
        greedy(9, ints(9), penalty, allowed, first, mask, end=3, no_repeat_ngram_size=3),
    ]
