"""
Attention, linear attention, rotary embeddings and causal convolutions with state.

They are lowered by the function bodies in their schemas; this page checks their nodes, and
repairs the body of Attention.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

from onnx import FunctionProto, helper

from popgraph.dialects.onnx.record import Conflicts
from popgraph.dialects.onnx.schema_op import SchemaOp
from popgraph.dialects.onnx.type_errors import TypeConflict
from popgraph.dialects.onnx.types import Dim
from popgraph.dialects.onnx.view import NodeView, PartialShape
from popgraph.operators.complaints import differ, of_rank, of_shape, shown, stretches
from popgraph.operators.record import Bounds, bounds, chooses, mends, requires
from popgraph.operators.schema_bodies import is_of, renamed


def _head(size: Dim, heads: int, name: str) -> Generator[TypeConflict, None, Dim]:
    """The size of one head, from the size of an axis that concatenates all heads."""
    if heads < 1 or (isinstance(size, int) and size % heads):
        yield TypeConflict(
            f"`{name}` is {heads} for an axis of size {size}", "it must divide that size"
        )
    return size // heads if isinstance(size, int) else None


def _query_and_key(
    node: NodeView, query: PartialShape, key: PartialShape, value: PartialShape
) -> Generator[TypeConflict, None, tuple[Dim, Dim]]:
    """The head sizes of queries and keys, from tensors [batch, length, heads * head size]."""
    queries, keys = node.integer("q_num_heads"), node.integer("kv_num_heads")
    of_query = yield from _head(query[2], queries, "q_num_heads")
    of_key = yield from _head(key[2], keys, "kv_num_heads")
    yield from _head(value[2], keys, "kv_num_heads")
    return of_query, of_key


def _grouped(queries: int, keys: int) -> Conflicts:
    if queries and keys and queries % keys:
        yield TypeConflict(
            f"{queries} query heads cannot share {keys} key heads equally",
            "the number of query heads must be a multiple of that of key heads",
        )


@requires("Attention")
def attention(node: NodeView) -> Conflicts:
    for index in range(3):
        yield from of_rank(node, index, node.rank_of(0) or 4)
    yield from of_rank(node, 0, 3, 4)
    query, key, value = (node.shape_of(index) for index in range(3))
    if query is None or key is None or value is None:
        return
    queries, keys = node.integer("q_num_heads"), node.integer("kv_num_heads")
    if len(query) == 3:
        alike = yield from _query_and_key(node, query, key, value)
    else:
        queries = query[1] if isinstance(query[1], int) else 0
        keys = key[1] if isinstance(key[1], int) else 0
        yield from of_shape(node, 2, None, key[1], key[2], None)
        alike = query[3], key[3]
    yield from _grouped(queries, keys)
    if differ(*alike):
        yield TypeConflict(
            f"query heads have size {alike[0]}, key heads {alike[1]}", "both must be equal"
        )
    if differ(query[0], key[0]) or differ(key[0], value[0]) or differ(key[-2], value[-2]):
        yield TypeConflict(
            f"keys {shown(key)} and values {shown(value)} for queries {shown(query)}",
            "the batch sizes, and the lengths of keys and values, must be equal",
        )
    if node.has(4) != node.has(5):
        yield TypeConflict("one of `past_key` and `past_value` is missing", "give both or none")
    if not node.has(4):
        # From version 24 on, a mask may be shorter than the keys: it hides the rest of them.
        last = None if node.version >= 24 else key[-2]
        yield from stretches(node, 3, (query[0], queries or None, query[-2], last))


@bounds("Attention")
def lengths(node: NodeView) -> Iterator[Bounds]:
    keys = node.static_shape_of(1)
    if keys is not None and len(keys) > 2:
        yield Bounds(6, "length", (0,), (keys[-2],))


@mends("Attention")
def retype_mask(proto: FunctionProto, op: SchemaOp) -> None:
    """
    scores + mask  ->  scores + CastLike(mask, query), for masks of integers

    The body of Attention writes infinities into its mask, which integers cannot hold.
    """
    if is_of(op, 3, "i", "u"):
        query, mask = proto.input[0], proto.input[3]
        renamed(proto, mask, "popgraph_mask")
        proto.node.insert(0, helper.make_node("CastLike", [mask, query], ["popgraph_mask"]))


@requires("LinearAttention")
def linear_attention(node: NodeView) -> Conflicts:
    for index in range(3):
        yield from of_rank(node, index, 3)
    query, key, value = (node.shape_of(index) for index in range(3))
    if query is None or key is None or value is None:
        return
    alike = yield from _query_and_key(node, query, key, value)
    keys = node.integer("kv_num_heads")
    yield from _grouped(node.integer("q_num_heads"), keys)
    if differ(*alike):
        yield TypeConflict(
            f"heads of queries {shown(query)} and keys {shown(key)} differ in size",
            "their head sizes must be equal",
        )
    for index in (1, 2):
        yield from of_shape(node, index, *query[:2], None)
    last = value[2] // keys if isinstance(value[2], int) else None
    yield from of_shape(node, 3, query[0], keys, alike[1], last)


chooses("LinearAttention", update_rule=("linear", "gated", "delta", "gated_delta"))


@requires("RotaryEmbedding")
def rotary_embedding(node: NodeView) -> Conflicts:
    yield from of_rank(node, 0, 3, 4)
    shape = node.shape_of(0)
    if shape is None:
        return
    length, size = shape[-2:]
    if len(shape) == 3:
        size = yield from _head(size, node.integer("num_heads"), "num_heads")
    rotated: Dim = node.integer("rotary_embedding_dim") or size
    pairs = rotated if isinstance(rotated, int) else 2
    if pairs < 2 or pairs % 2:
        yield TypeConflict(
            f"`rotary_embedding_dim` is {rotated}", "it must be even: elements rotate in pairs"
        )
    if isinstance(size, int) and pairs > size:
        yield TypeConflict(
            f"`rotary_embedding_dim` is {rotated} for heads of size {size}",
            "it must be at most the head size",
        )
    half = rotated // 2 if isinstance(rotated, int) else None
    yield from of_shape(node, 3, shape[0], length)
    rows = (None,) if node.has(3) else (shape[0], length)
    for index in (1, 2):
        yield from of_shape(node, index, *rows, half)
    cosines, sines = node.shape_of(1), node.shape_of(2)
    if cosines and sines and any(map(differ, cosines, sines)):
        yield TypeConflict(
            f"`cos_cache` is {shown(cosines)}, `sin_cache` {shown(sines)}", "both must be alike"
        )


@bounds("RotaryEmbedding")
def positions(node: NodeView) -> Iterator[Bounds]:
    table = node.static_shape_of(1)
    if table:
        yield Bounds(3, "position", (0,), (table[0] - 1,))


@requires("CausalConvWithState")
def causal_convolution(node: NodeView) -> Conflicts:
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
