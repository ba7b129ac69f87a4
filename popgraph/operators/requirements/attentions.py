"""What attention and rotary embeddings ask of heads, caches and masks."""

from __future__ import annotations

from collections.abc import Iterator

from popgraph.dialects.onnx.record import Complaints
from popgraph.dialects.onnx.type_errors import TypeConflict
from popgraph.dialects.onnx.types import Dim
from popgraph.dialects.onnx.view import NodeView
from popgraph.operators.complaints import differ, of_rank, of_shape, shown, stretches
from popgraph.operators.record import Bounds, bounds, chooses, requires


@requires("RotaryEmbedding")
def rotary_embedding(node: NodeView) -> Complaints:
    yield from of_rank(node, 0, 3, 4)
    shape = node.shape_of(0)
    if shape is None:
        return
    length, size = shape[-2], _head(node, shape)
    if len(shape) == 3:
        yield from _heads(shape[-1], node.integer("num_heads"), "num_heads")
    rotated: Dim = node.integer("rotary_embedding_dim") or size
    if isinstance(rotated, int) and (rotated < 2 or rotated % 2):
        yield TypeConflict(f"{rotated} numbers of a head are rotated", "they are rotated in pairs")
        return
    if isinstance(rotated, int) and isinstance(size, int) and rotated > size:
        yield TypeConflict(f"{rotated} of the {size} numbers of a head are rotated", "at most all")
    half = rotated // 2 if isinstance(rotated, int) else None
    if node.has(3):
        yield from of_shape(node, 3, shape[0], length)
    for index in (1, 2):
        if node.has(3):
            yield from of_shape(node, index, None, half)
        else:
            yield from of_shape(node, index, shape[0], length, half)
    cosines, sines = node.shape_of(1), node.shape_of(2)
    if cosines and sines and any(map(differ, cosines, sines)):
        yield TypeConflict(f"caches of {shown(cosines)} and {shown(sines)}", "they are alike")


def _head(node: NodeView, shape: tuple[Dim, ...]) -> Dim:
    """How many numbers a head has."""
    if len(shape) == 4:
        return shape[3]
    heads = node.integer("num_heads")
    return shape[2] // heads if isinstance(shape[2], int) and heads > 0 else None


def _heads(size: Dim, heads: int, name: str) -> Complaints:
    if heads < 1 or (isinstance(size, int) and size % heads):
        yield TypeConflict(f"`{name}` is {heads} for {size} numbers", "it divides them")


@requires("Attention")
def attention(node: NodeView) -> Complaints:
    query, key, value = (node.shape_of(index) for index in range(3))
    for index in range(3):
        yield from of_rank(node, index, node.rank_of(0) or 4)
    yield from of_rank(node, 0, 3, 4)
    if query is None or key is None or value is None:
        return
    queries, keys = node.integer("q_num_heads"), node.integer("kv_num_heads")
    if len(query) == 3:
        yield from _heads(query[2], queries, "q_num_heads")
        yield from _heads(key[2], keys, "kv_num_heads")
        yield from _heads(value[2], keys, "kv_num_heads")
        alike = _one_head(query[2], queries), _one_head(key[2], keys)
    else:
        queries = query[1] if isinstance(query[1], int) else 0
        keys = key[1] if isinstance(key[1], int) else 0
        yield from of_shape(node, 2, None, key[1], key[2], None)
        alike = query[3], key[3]
    if queries and keys and queries % keys:
        yield TypeConflict(f"{queries} heads of queries share {keys} of keys", "in equal parts")
    if differ(*alike):
        yield TypeConflict(
            f"heads of queries have {alike[0]} numbers, those of keys {alike[1]}", "the same"
        )
    if differ(query[0], key[0]) or differ(key[0], value[0]) or differ(key[-2], value[-2]):
        yield TypeConflict(
            f"keys {shown(key)} and values {shown(value)} for queries {shown(query)}",
            "batches, and the lengths of keys and values, are the same",
        )
    if node.has(4) != node.has(5):
        yield TypeConflict("one of `past_key` and `past_value` is missing", "give both or none")
    if not node.has(4):
        # From version 24 on, a mask that ends before the keys do hides the rest of them.
        last = None if node.version >= 24 else key[-2]
        yield from stretches(node, 3, (query[0], queries or None, query[-2], last))


def _one_head(size: Dim, heads: int) -> Dim:
    return size // heads if isinstance(size, int) else None


@requires("LinearAttention")
def linear_attention(node: NodeView) -> Complaints:
    for index in range(3):
        yield from of_rank(node, index, 3)
    query, key, value = (node.shape_of(index) for index in range(3))
    if query is None or key is None or value is None:
        return
    queries, keys = node.integer("q_num_heads"), node.integer("kv_num_heads")
    yield from _heads(query[2], queries, "q_num_heads")
    yield from _heads(key[2], keys, "kv_num_heads")
    yield from _heads(value[2], keys, "kv_num_heads")
    if queries % keys:
        yield TypeConflict(f"{queries} heads of queries share {keys} of keys", "in equal parts")
    size = _one_head(key[2], keys)
    if differ(_one_head(query[2], queries), size):
        yield TypeConflict(f"heads of queries {shown(query)}, keys {shown(key)}", "one size")
    for index in (1, 2):
        yield from of_shape(node, index, *query[:2], None)
    yield from of_shape(node, 3, query[0], keys, size, _one_head(value[2], keys))


@requires("CausalConvWithState")
def causal_conv(node: NodeView) -> Complaints:
    image, weight = node.shape_of(0), node.shape_of(1)
    yield from of_rank(node, 0, 3)
    yield from of_rank(node, 1, 3)
    if image is None or weight is None:
        return
    yield from of_shape(node, 1, image[1], 1, None)
    yield from of_shape(node, 2, image[1])
    last = weight[2] - 1 if isinstance(weight[2], int) else None
    yield from of_shape(node, 3, *image[:2], last)


chooses("CausalConvWithState", activation=("none", "silu", "swish"))


chooses("LinearAttention", update_rule=("linear", "gated", "delta", "gated_delta"))


@bounds("RotaryEmbedding")
def positions(node: NodeView) -> Iterator[Bounds]:
    table = node.static_shape_of(1)
    if table:
        yield Bounds(3, "position", (0,), (table[0] - 1,))


@bounds("Attention")
def lengths(node: NodeView) -> Iterator[Bounds]:
    keys = node.static_shape_of(1)
    if keys is not None and len(keys) > 2:
        yield Bounds(6, "length", (0,), (keys[-2],))
