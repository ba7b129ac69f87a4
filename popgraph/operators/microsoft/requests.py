"""Layers of onnxruntime over sequences of several lengths, which stand one behind the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from popgraph.operators.microsoft.body import LAST, Value
from popgraph.operators.microsoft.call import Call, defines
from popgraph.operators.microsoft.hashes import filler_of, hashes_of
from popgraph.operators.microsoft.normalizations import wide
from popgraph.operators.microsoft.recurrences import silu
from popgraph.operators.record import MICROSOFT, without_gradient


@dataclass(frozen=True)
class Requests:
    """Where the tokens of each sequence begin, and where they end; the first begins at 0."""

    begins: Value
    ends: Value

    @classmethod
    def of(cls, limits: Value) -> Requests:
        limits = limits.typed("i64")
        return cls(limits.part(0, -1, 0), limits.part(1, LAST, 0))

    def owners(self, tokens: Value) -> Value:
        """To which sequence each of these tokens belongs."""
        return (tokens.Unsqueeze([1]) >= self.ends).typed("i64").ReduceSum([1], keepdims=0)

    def reached(self, sequence: Value, place: Value, before: int) -> Value:
        """
        Rows of a table that begins with what stood before each sequence, so many rows of each.

        The place counts from the begin of its sequence; before it, it is negative.
        """
        inside = self.begins.Gather(sequence) + self.begins.length(0) * before + place
        ahead = sequence * before + before + place
        return (place >= 0).Where(inside, ahead)

    def last(self, count: int) -> Value:
        """The places of the last tokens of each sequence: [sequences, count]."""
        lengths = self.ends - self.begins
        return lengths.Unsqueeze([1]) + (lengths.body.counted(count) - count)

    def captured(self, call: Call, capacity: int) -> Value:
        """Which of its first tokens each sequence shows: [sequences, capacity]."""
        at = self.ends.body.counted(capacity)
        counts = call["capture_count"].typed("i64").Min(self.ends - self.begins)
        return at < counts.Unsqueeze([1])


def capacity_of(call: Call) -> int:
    """How many of its first tokens each sequence shows at most."""
    capacity = call.integer("state_update_capacity")
    if bool(capacity) != call.has("capture_count") or not 0 <= capacity <= 8:
        raise call.unfit(
            f"state_update_capacity = {capacity} and {'a' if call.has('capture_count') else 'no'} "
            "capture_count",
            "give both, with a capacity of at most 8, or neither",
        )
    return capacity


@defines("VarlenCausalConvWithState",
         "input weight cumulative_sequence_length bias initial_state capture_count "
         "kernel_delta previous_mask",
         ignored="group_size delta_offset")  # fmt: skip
def packed_convolution(call: Call) -> Sequence[Value | None]:
    """A convolution of each channel by itself, which stays within its sequence and its state."""
    taps, spread_ = call.size("weight", 2), call.integer("dilation", 1)
    before, capacity = (taps - 1) * spread_, capacity_of(call)
    requests = Requests.of(call["cumulative_sequence_length"])
    x = wide(call, call["input"], "input")
    states = wide(call, call["initial_state"], "initial_state")
    table = states.permuted(0, 2, 1).reshaped(-1, call.size("weight", 0)).Concat(x, axis=0)
    tokens = call.body.counted(x.length(0))
    owners = requests.owners(tokens)
    places = (tokens - requests.begins.Gather(owners)).Unsqueeze([1])
    back = call.body.constant([at * spread_ - before for at in range(taps)])
    seen = table.Gather(requests.reached(owners.Unsqueeze([1]), places + back, before))
    weights = wide(call, call["weight"], "weight").Squeeze([1]).permuted(1, 0)
    made = (seen * weights).ReduceSum([1], keepdims=0)
    if call.has("bias"):
        made = made + wide(call, call["bias"], "bias")
    sequences = call.body.counted(requests.begins.length(0)).Unsqueeze([1])
    kept = table.Gather(requests.reached(sequences, requests.last(before), before))
    shown = None
    if capacity:
        captured = requests.captured(call, capacity)
        first = captured.Where(call.body.counted(capacity), call.body.constant(0))
        rows = table.Gather(requests.reached(sequences, first, before))
        shown = captured.Unsqueeze([2]).Where(rows, rows.number(0.0)).CastLike(call["input"])
    made = silu(call, made).CastLike(call["input"])
    return made, kept.permuted(0, 2, 1).CastLike(call["input"]), shown


@defines("VarlenNGramHashMapping",
         "input_ids multipliers vocab_sizes cumulative_sequence_length past_ids head_offsets "
         "eos_token_id segment_ids past_segment_ids capture_count")  # fmt: skip
def packed_hashes(call: Call) -> Sequence[Value | None]:
    """As NGramHashMapping, of each sequence by itself."""
    behind, capacity = call.needs("max_ngram_size") - 1, capacity_of(call)
    requests, filler = Requests.of(call["cumulative_sequence_length"]), filler_of(call)
    tokens = call.body.counted(call["input_ids"].length(0))
    owners, count = requests.owners(tokens), requests.begins.length(0)
    places = tokens - requests.begins.Gather(owners)
    rows = count.reshaped(1).Concat([behind], axis=0)
    ids = _with_past(call, "input_ids", "past_ids", filler.Expand(rows))
    reached = [requests.reached(owners, places - by, behind) for by in range(behind + 1)]
    parts = _segments(call, requests, rows)
    kinds = [parts and parts.Gather(one) for one in reached]
    breaks = [one and other and one.same(other).Not() for one, other in pairwise(kinds)]
    made = hashes_of(call, [ids.Gather(one) for one in reached], breaks, filler)
    sequences = call.body.counted(count).Unsqueeze([1])
    kept = requests.reached(sequences, requests.last(behind), behind)
    shown = None
    if capacity:
        captured = requests.captured(call, capacity).Unsqueeze([2])
        first = call.body.counted(capacity).Unsqueeze([1]) + 1 - behind
        back = captured.Where(first + call.body.counted(behind), call.body.constant(-behind))
        states = ids.Gather(requests.reached(sequences.Unsqueeze([2]), back, behind))
        shown = captured.Where(states, states.number(call.integer("pad_id")))
    return made, ids.Gather(kept), parts and parts.Gather(kept), shown


def _with_past(call: Call, now: str, past: str, otherwise: Value) -> Value:
    """What stands before each sequence, and behind all that the sequences themselves."""
    return (call.get(past) or otherwise).reshaped(-1).Concat(call[now], axis=0)


def _segments(call: Call, requests: Requests, rows: Value) -> Value | None:
    """To which segments ids belong; what stands before a sequence, if unknown, to its first."""
    if not call.has("segment_ids"):
        return None
    first = call["segment_ids"].Gather(requests.begins).Unsqueeze([1])
    return _with_past(call, "segment_ids", "past_segment_ids", first.Expand(rows))


without_gradient("VarlenNGramHashMapping", "it hashes integers", domain=MICROSOFT)
