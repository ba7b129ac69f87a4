"""Text of onnxruntime's decoders: a graph is run again and again, with the token that it gave."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from xdsl.dialects.builtin import TensorType

from popgraph.dialects.onnx.op import Graph
from popgraph.dialects.onnx.types import dims
from popgraph.operators.microsoft.body import Body, Value
from popgraph.operators.microsoft.call import Call, defines
from popgraph.operators.microsoft.movement import would_repeat
from popgraph.operators.record import HOSTED, MICROSOFT, without_gradient

LOWEST = float(np.finfo(np.float32).min)
"""The score of a token that may not come."""


@defines("GreedySearch",
         "input_ids max_length min_length repetition_penalty vocab_mask prefix_vocab_mask "
         "attention_mask",
         ignored="vocab_size decoder_start_token_id")  # fmt: skip
def greedy_search(call: Call) -> Value:
    """
    The likeliest token follows, until all sequences have ended or are long enough.

    A sequence that has ended is filled with `pad_token_id`, and the longest is not cut.
    """
    decoder, states = _decoder(call)
    ids, pad = call["input_ids"], call.integer("pad_token_id")
    mask, places, following = _places(call, ids, pad)
    most = call["max_length"].typed("i64").reshaped()
    running = call.body.constant(np.array(True)).Expand(ids.Shape(end=1))
    start = [ids, ids, places, mask, following, running, *_empty(call, decoder, states)]

    one = call.body.constant(np.array(1, np.int32))

    def turn(body: Body, at: Value, *now: Value) -> tuple[Value, Sequence[Value]]:
        sequences, new, places, mask, following, running, *past = now
        logits, *present = body.called(decoder, [new, places, mask, *past], 1 + states)
        last = logits.Gather(-1, axis=1)
        chosen = _allowed(call, last, sequences, at).ArgMax(axis=1, keepdims=0).typed("i32")
        running = running & chosen.same(call.integer("eos_token_id")).Not()
        token = running.Where(chosen, chosen.number(pad)).Unsqueeze([1])
        longer = sequences.Concat(token, axis=1)
        seen = mask.Concat(one.Expand(token.Shape()), axis=1)
        kept = [longer, token, following, seen, following + 1, running, *present]
        return running.typed("i32").ReduceMax(keepdims=0) > 0, kept

    found, *_ = call.body.looped(most - ids.length(1), start, turn)
    behind = (most - found.length(1)).Max(0).reshaped(1)
    pads = call.body.constant([0, 0, 0]).Concat(behind, axis=0)
    return found.Pad(pads, found.number(pad))


def _decoder(call: Call) -> tuple[Graph, int]:
    """The graph, and how many states it hands on."""
    if call.integer("model_type"):
        raise call.refuse(f"model_type = {call.integer('model_type')}", "0, of GPT-2, is")
    decoder = call.graph("decoder")
    states = len(decoder.outputs) - 1
    if len(decoder.inputs) != 3 + states or states < 1:
        raise call.refuse(
            f"a decoder of {len(decoder.inputs)} inputs and {len(decoder.outputs)} outputs",
            "one with input_ids, position_ids, attention_mask and states, which gives logits "
            "and as many states, is",
        )
    return decoder, states


def _empty(call: Call, decoder: Graph, states: int) -> list[Value]:
    """States of no tokens: [2, batch, heads, 0, size]."""
    found = []
    for argument in list(decoder.block.args)[3 : 3 + states]:
        sizes = dims(argument.type) if isinstance(argument.type, TensorType) else None
        if sizes is None or len(sizes) != 5:
            raise call.unfit("a decoder whose states are not [2, batch, heads, tokens, size]")
        heads, size = sizes[2], sizes[4]
        if not isinstance(heads, int) or not isinstance(size, int):
            raise call.unfit("a decoder whose states have an unknown number of heads or size")
        before = call.body.constant([2]).Concat(call["input_ids"].Shape(end=1), axis=0)
        shape = before.Concat([heads, 0, size], axis=0)
        found.append(call.body.constant(0.0).Expand(shape))
    return found


def _places(call: Call, ids: Value, pad: int) -> tuple[Value, Value, Value]:
    """Which tokens are seen, their places, and the place of the token that follows."""
    is_token = ids.same(pad).Not().typed("i32")
    places = (is_token.CumSum(1) - 1) * is_token
    return call.get("attention_mask") or is_token, places, is_token.ReduceSum([1])


def _allowed(call: Call, scores: Value, sequences: Value, at: Value) -> Value:
    """Scores of the next token, after all that speaks against some of them."""
    tokens = scores.body.counted(scores.length(1)).typed("i32")
    never = scores.number(LOWEST)
    if call.has("repetition_penalty"):
        penalty = call["repetition_penalty"]
        there = sequences.Unsqueeze([2]).same(tokens).typed("i32").ReduceMax([1], keepdims=0) > 0
        less = (scores < 0).Where(scores * penalty, scores / penalty)
        scores = there.Where(less, scores)
    size = call.integer("no_repeat_ngram_size")
    if size > 0:
        repeats = would_repeat(sequences.typed("i64"), size, scores.length(1))
        scores = repeats.Where(never, scores)
    if call.has("vocab_mask"):
        scores = call["vocab_mask"].same(0).Where(never, scores)
    if call.has("prefix_vocab_mask"):
        hidden = call["prefix_vocab_mask"].same(0) & at.same(0)
        scores = hidden.Where(never, scores)
    if call.has("min_length"):
        early = sequences.length(1) < call["min_length"].typed("i64")
        hidden = tokens.same(call.integer("eos_token_id")) & early
        scores = hidden.Where(never, scores)
    return scores


without_gradient("GreedySearch", HOSTED, domain=MICROSOFT)
