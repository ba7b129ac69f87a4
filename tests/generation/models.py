"""Small causal language models in all layouts, as `.pgraph` texts."""

from __future__ import annotations

VOCABULARY, HEADS, SIZE = 40, 4, 16
PAST = "`past_key_values.0.key`", "`past_key_values.0.value`"

POSITIONS = {
    "given": "position_ids",
    "mask": "Slice(CumSum(attention_mask, 1), Unsqueeze(past, [0]), [100000], [1]) - 1",
    "shape": "Range(past, total, 1)",
}
"""Sources of token positions."""


def text(
    *,
    past: bool = True,
    mask: bool = True,
    positions: str = "given",
    window: int = 0,
    branch: bool = False,
    batch: str = "N",
    capacity: str = "P",
    length: str = "L",
    logits: str = "h @ head",
    shared: bool = False,
    table: int = 0,
) -> str:
    """
    One layer of attention with learned positions.

    With `shared`, two heads of keys and values serve four of queries, as transformers repeats them.
    With a `table` of this many positions, its rows say which keys are visible, as in GPT-2's and
    GPT-Neo's eager attention: cache and new tokens together must not be longer.
    """
    kept = 2 if shared else HEADS
    inputs = [f"input_ids: i64[{batch}, {length}]"]
    inputs += [f"attention_mask: i64[{batch}, T]"] * mask
    inputs += [f"position_ids: i64[{batch}, {length}]"] * (positions == "given")
    inputs += ["use_cache_branch: bool[1]"] * branch
    inputs += [f"{one}: f32[{batch}, {kept}, {capacity}, {SIZE}]" for one in PAST] * past
    outputs = "logits, `present.0.key`, `present.0.value`" if past else "logits"
    pairs = zip("kv", PAST, strict=True)
    joined = [f"{one} = Concat({old}, new_{one}, axis=2)" for one, old in pairs]
    seen = "visible and Unsqueeze(Cast(attention_mask, to=bool), [1, 2])" if mask else "visible"
    places = POSITIONS[positions]
    visible = f"distance >= 0{f' and distance < {window}' if window else ''}"
    if table:
        end = "Unsqueeze(total, [0])"
        rows = f"Slice(triangle, Unsqueeze(past, [0]), {end}, [0])"
        visible = f"Slice({rows}, [0], {end}, [1]) > 0"

    def spread(value: str) -> str:
        """Repeats each head."""
        twice = f"Expand(Unsqueeze({value}, [2]), [1, 1, 2, 1, 1])"
        return f"Reshape({twice}, [0, {HEADS}, -1, {SIZE}])" if shared else value

    lines = [
        f"past = Shape({PAST[0]})[2]" if past else "past = Shape(input_ids)[1] * 0",
        "total = past + Shape(input_ids)[1]",
        f"e = words[input_ids] + places[{places}]",
        *(f"new_{one} = (e @ {one}_w |> split)[:, 0:{kept}]" for one in "kv"),
        *(joined if past else ["k = Identity(new_k)", "v = Identity(new_v)"]),
        "distance = Unsqueeze(Range(past, total, 1), [1]) - Unsqueeze(Range(0, total, 1), [0])",
        f"visible = {visible}",
        f"scores = (e @ q_w |> split) @ Transpose({spread('k')}, perm=[0, 1, 3, 2]) / {SIZE**0.5}",
        f"read = Softmax(scores if {seen} else -1e9) @ {spread('v')}",
        "h = e + (Transpose(read, perm=[0, 2, 1, 3]) |> Reshape([0, 0, width]))",
        f"logits = {logits}",
        *["`present.0.key` = Identity(k)", "`present.0.value` = Identity(v)"] * past,
    ]
    ones = ", ".join(
        f"[{', '.join(['1'] * at + ['0'] * (table - at))}]" for at in range(1, table + 1)
    )
    triangle = [f"triangle: f32[{table}, {table}] = [{ones}]"] * bool(table)
    return _graph(inputs, outputs, lines, triangle)


def grouped(capacity: str = "P", size: str = str(SIZE)) -> str:
    """
    A model with onnxruntime's GroupQueryAttention, as onnxruntime-genai exports models.

    Since 0.18, `size` is a symbolic dimension, because quantized caches have other sizes.
    """
    half = [f"{one}: f32[N, 2, {capacity}, {size}]" for one in PAST]
    inputs = ["input_ids: i64[N, L]", "attention_mask: i64[N, T]", *half]
    lines = [
        "e = words[input_ids]",
        "ends = Cast(ReduceSum(attention_mask, [1], keepdims=0) - 1, to=i32)",
        "total = Cast(Shape(attention_mask)[1], to=i32)",
        "narrow = (e @ k_w)[:, :, 0:32]",
        "values = (e @ v_w)[:, :, 0:32]",
        "(read, `present.0.key`, `present.0.value`) = microsoft.GroupQueryAttention(e @ q_w, "
        f"narrow, values, {', '.join(PAST)}, ends, total, cos, sin, "
        "num_heads=4, kv_num_heads=2, do_rotary=1)",
        "logits = (e + read) @ head",
    ]
    weights = ["cos: f32[256, 8] = uniform(low=-1)", "sin: f32[256, 8] = uniform(low=-1)"]
    outputs = "logits, `present.0.key`, `present.0.value`"
    return _graph(inputs, outputs, lines, weights).replace("\n", "\nopset com.microsoft 1\n", 1)


def _graph(inputs: list[str], outputs: str, lines: list[str], weights: list[str] = []) -> str:  # noqa: B006
    matrices = [f"{one}_w: f32[width, width] = normal(std=0.3, seed={ord(one)})" for one in "qkv"]
    weights = [
        f"words: f32[{VOCABULARY}, width] = normal(seed=1)",
        "places: f32[512, width] = normal(seed=2)",
        f"head: f32[width, {VOCABULARY}] = normal(seed=3)",
        *matrices,
        *weights,
    ]
    body = "\n".join([*(f"    weight {one}" for one in weights), *(f"    {one}" for one in lines)])
    return f"""opset 21
let width = {HEADS * SIZE}
def split(x: f32[N, length, size]) -> y {{
    y = x |> Reshape([0, 0, {HEADS}, {SIZE}]) |> Transpose(perm=[0, 2, 1, 3])
}}
graph language({", ".join(inputs)}) -> ({outputs}) {{
{body}
}}
"""
