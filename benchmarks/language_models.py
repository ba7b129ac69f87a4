"""Causal language models with random weights and the layouts of transformers' exporters."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Language:
    """A decoder of identical layers, and the number of tokens to generate."""

    tokens: int
    layers: int = 12
    heads: int = 8
    kept: int = 8
    """Heads of keys and values; with fewer than `heads`, several query heads share one."""
    size: int = 64
    hidden: int = 2048
    vocabulary: int = 8192
    rotary: bool = False
    """Rotary embeddings and gated layers as in Llama; otherwise as in GPT-2."""

    @property
    def width(self) -> int:
        return self.heads * self.size


GPT = Language(64)
LLAMA = Language(64, kept=2, hidden=1408, rotary=True)
LANGUAGES = {
    "gpt_12x512_64": GPT,
    "gpt_12x512_256": Language(256),
    "llama_12x512_64": LLAMA,
    "llama_12x512_256": Language(256, kept=2, hidden=1408, rotary=True),
}


def text(net: Language) -> str:
    """The model as a `.pgraph` text."""
    cache = [f"`past_key_values.{at}.{one}`" for at in range(net.layers) for one in KINDS]
    inputs = ["input_ids: i64[N, L]", "attention_mask: i64[N, T]", "position_ids: i64[N, L]"]
    inputs += [f"{one}: f32[N, {net.kept}, P, {net.size}]" for one in cache]
    outputs = ["logits", *(one.replace("past_key_values", "present") for one in cache)]
    weights = [f"words: f32[{net.vocabulary}, {net.width}] = normal(std=0.5, seed=1)"]
    weights += [
        *_tables(net),
        f"head: f32[{net.width}, {net.vocabulary}] = normal(std=0.1, seed=2)",
    ]
    lines = [
        f"past = Shape({cache[0]})[2]",
        "total = past + Shape(input_ids)[1]",
        "h0 = words[input_ids]" + ("" if net.rotary else " + places[position_ids]"),
        "distance = Unsqueeze(Range(past, total, 1), [1]) - Unsqueeze(Range(0, total, 1), [0])",
        "seen = distance >= 0 and Unsqueeze(Cast(attention_mask, to=bool), [1, 2])",
    ]
    for at in range(net.layers):
        weights += _weights(net, at)
        lines += _layer(net, at)
    lines.append(f"logits = {_normed(net, f'h{net.layers}', 'last')} @ head")
    weights.append(f"last: f32[{net.width}] = constant(1)")
    body = "\n".join(f"    {one}" for one in (*(f"weight {one}" for one in weights), *lines))
    return (
        f"opset 23\ngraph language({', '.join(inputs)}) -> ({', '.join(outputs)}) {{\n{body}\n}}\n"
    )


KINDS = ("key", "value")


def _tables(net: Language) -> list[str]:
    if not net.rotary:
        return [f"places: f32[1024, {net.width}] = normal(std=0.5, seed=3)"]
    names = enumerate(("cosines", "sines"), 4)
    return [f"{one}: f32[1024, {net.size // 2}] = uniform(low=-1, seed={at})" for at, one in names]


def _weights(net: Language, at: int) -> list[str]:
    wide, narrow = net.width, net.kept * net.size
    matrices = {"q": (wide, wide), "k": (wide, narrow), "v": (wide, narrow), "o": (wide, wide)}
    matrices |= {"up": (wide, net.hidden), "down": (net.hidden, wide)}
    if net.rotary:
        matrices["gate"] = wide, net.hidden
    found = [
        f"{name}{at}: f32[{rows}, {columns}] = normal(std={rows**-0.5:.4f}, seed={100 * at + seed})"
        for seed, (name, (rows, columns)) in enumerate(matrices.items(), 10)
    ]
    return [*found, *(f"{one}{at}: f32[{wide}] = constant(1)" for one in ("first", "second"))]


def _layer(net: Language, at: int) -> list[str]:
    """Attention over the cache, then two or three matmuls."""
    h, groups = f"h{at}", net.heads // net.kept
    queries, keys = (f"{_split(f'n{at} @ {one}{at}', count)}"
                     for one, count in (("q", net.heads), ("k", net.kept)))  # fmt: skip
    if net.rotary:
        queries, keys = (
            f"RotaryEmbedding({one}, cosines, sines, position_ids)" for one in (queries, keys)
        )
    spread = [f"all_{one}{at} = {_repeated(net, f'{one}{at}_all', groups)}" for one in "kv"]
    up = f"n{at}b @ up{at}"
    active = f"Sigmoid(g{at}) * g{at} * ({up})" if net.rotary else f"Gelu({up})"
    return [
        f"n{at} = {_normed(net, h, f'first{at}')}",
        f"q{at}_new = {queries}",
        f"k{at}_new = {keys}",
        f"v{at}_new = {_split(f'n{at} @ v{at}', net.kept)}",
        f"k{at}_all = Concat(`past_key_values.{at}.key`, k{at}_new, axis=2)",
        f"v{at}_all = Concat(`past_key_values.{at}.value`, v{at}_new, axis=2)",
        f"`present.{at}.key` = Identity(k{at}_all)",
        f"`present.{at}.value` = Identity(v{at}_all)",
        *spread,
        f"s{at} = q{at}_new @ Transpose(all_k{at}, perm=[0, 1, 3, 2]) / {net.size**0.5}",
        f"r{at} = Softmax(s{at} if seen else -1e9) @ all_v{at}",
        f"j{at} = Reshape(Transpose(r{at}, perm=[0, 2, 1, 3]), [0, 0, {net.width}])",
        f"a{at} = {h} + j{at} @ o{at}",
        f"n{at}b = {_normed(net, f'a{at}', f'second{at}')}",
        *[f"g{at} = n{at}b @ gate{at}"] * net.rotary,
        f"h{at + 1} = a{at} + ({active}) @ down{at}",
    ]


def _split(product: str, heads: int) -> str:
    return f"Transpose(Reshape({product}, [0, 0, {heads}, -1]), perm=[0, 2, 1, 3])"


def _repeated(net: Language, value: str, groups: int) -> str:
    """Repeats key heads for each query head, as transformers does."""
    if groups == 1:
        return f"Identity({value})"
    spread = f"Expand(Unsqueeze({value}, [2]), [1, 1, {groups}, 1, 1])"
    return f"Reshape({spread}, [0, {net.heads}, -1, {net.size}])"


def _normed(net: Language, value: str, scale: str) -> str:
    return f"{'RMS' if net.rotary else 'Layer'}Normalization({value}, {scale})"
