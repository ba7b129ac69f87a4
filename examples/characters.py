"""Train a language model on the Zen of Python, then let it write, with and without a cache."""

from __future__ import annotations

import codecs
import contextlib
import io
import time
from pathlib import Path

import numpy as np

import popgraph

WIDTH, HEADS, LAYERS, WINDOW, STEPS = 64, 4, 2, 64, 300
LAYER = """
def dense(x: f32[N, length, inputs], outputs) -> y {{
    weight w: f32[inputs, outputs] = {matrix}
    weight b: f32[outputs] = {zeros}
    y = x @ w + b
}}

def norm(x: f32[N, length, size]) -> y {{
    weight scale: f32[size] = {ones}
    weight bias: f32[size] = {zeros}
    y = LayerNormalization(x, scale, bias)
}}

def split(x: f32[N, length, size]) -> y {{
    y = x |> Reshape([0, 0, heads, size / heads]) |> Transpose(perm=[0, 2, 1, 3])
}}

def attention(q, k, v, visible) -> y {{
    scores = split(q) @ Transpose(k, perm=[0, 1, 3, 2]) / (width / heads) ** 0.5
    read = Softmax(scores if visible else -1e9) @ v
    y = Transpose(read, perm=[0, 2, 1, 3]) |> Reshape([0, 0, width])
}}
"""


def zen() -> str:
    """The text of Python's module `this`."""
    with contextlib.redirect_stdout(io.StringIO()):
        import this
    return codecs.decode(this.s, "rot13")


def network(vocabulary: int, *, cached: bool, loaded: bool) -> str:
    """
    A transformer as `.pgraph` text, from tokens to the logits of the next one.

    With `cached`, keys and values of earlier tokens are inputs, those with new ones outputs. Both
    forms have the same weights, under the same names.
    """
    start = dict.fromkeys(("matrix", "zeros", "ones"), "load") if loaded else {}
    start = {"matrix": "normal(std=0.05)", "zeros": "zeros", "ones": "ones"} | start
    inputs, outputs = ["input_ids: i64[N, length]"], ["logits"]
    lines = ["past = Shape(input_ids)[1] * 0"]
    if cached:
        inputs += ["attention_mask: i64[N, keys]", "position_ids: i64[N, length]"]
        lines = ["past = Shape(`past_key_values.0.key`)[2]"]
    lines += [
        "total = past + Shape(input_ids)[1]",
        "causal = Unsqueeze(Range(past, total, 1), [1]) >= Unsqueeze(Range(0, total, 1), [0])",
        "visible = causal and Unsqueeze(Cast(attention_mask, to=bool), [1, 2])"
        if cached
        else "visible = causal",
        f"x0 = words[input_ids] + places[{'position_ids' if cached else 'Range(past, total, 1)'}]",
    ]
    for layer in range(LAYERS):
        lines += [f"n{layer} = norm(x{layer})", f"q{layer} = dense(n{layer}, width)"]
        for kind, name in (("key", f"k{layer}"), ("value", f"v{layer}")):
            lines.append(f"new_{name} = dense(n{layer}, width)")
            if cached:
                before, after = f"`past_key_values.{layer}.{kind}`", f"`present.{layer}.{kind}`"
                inputs.append(f"{before}: f32[N, heads, past, width / heads]")
                outputs.append(after)
                lines.append(f"{after} = Concat({before}, split(new_{name}), axis=2)")
                lines.append(f"{name} = Identity({after})")
            else:
                lines.append(f"{name} = split(new_{name})")
        lines += [
            f"read{layer} = attention(q{layer}, k{layer}, v{layer}, visible)",
            f"a{layer} = x{layer} + dense(read{layer}, width)",
            f"m{layer} = Gelu(dense(norm(a{layer}), 4 * width))",
            f"x{layer + 1} = a{layer} + dense(m{layer}, width)",
        ]
    lines.append(f"logits = dense(norm(x{LAYERS}), {vocabulary})")
    body = "\n".join(f"    {line}" for line in lines)
    return f"""opset 21

let width = {WIDTH}
let heads = {HEADS}
{LAYER.format(**start)}
{'@weights("characters.npz")' if loaded else ""}
graph characters({", ".join(inputs)}) -> ({", ".join(outputs)}) {{
    weight words: f32[{vocabulary}, width] = {start["matrix"]}
    weight places: f32[{WINDOW}, width] = {start["matrix"]}
{body}
}}
"""


def train(text: str, alphabet: str, steps: int = STEPS) -> popgraph.Trainer:
    """Train on windows of the text: each position predicts the next character."""
    tokens = np.array([alphabet.index(letter) for letter in text])
    random = np.random.default_rng(0)
    starts = random.integers(0, len(tokens) - WINDOW, (steps, 16, 1))
    windows = tokens[starts + np.arange(WINDOW + 1)]
    trainer = popgraph.Trainer(
        network(len(alphabet), cached=False, loaded=False), "cross_entropy", "adam(0.003)"
    )
    batches = [(one[:, :-1], one[:, 1:].astype(np.int32)) for one in windows]
    trainer.fit(batches)
    return trainer


def main() -> None:
    start = time.perf_counter()
    text = zen()
    alphabet = "".join(sorted(set(text)))
    trainer = train(text, alphabet)
    trainer.save("characters.onnx")
    np.savez("characters.npz", **trainer.weights())
    Path("cached.pgraph").write_text(network(len(alphabet), cached=True, loaded=True))
    loss = trainer.history.steps[-1]["loss"]
    print(f"{STEPS} steps, loss {loss:.3f}, {time.perf_counter() - start:.1f} s")

    prompt = [alphabet.index(letter) for letter in "Beautiful is"]
    decoder = popgraph.Decoder("cached.pgraph", max_length=WINDOW)
    written = []
    for token in decoder.stream(prompt, 40, stop=alphabet.index("\n")):
        written.append(token)
        print(alphabet[token], end="", flush=True)
    again = popgraph.generate(
        "characters.onnx", prompt, 40, stop=alphabet.index("\n"), max_length=WINDOW
    )
    assert written == again.tolist(), "with and without a cache, the tokens are the same"
    drawn = popgraph.generate(decoder, prompt, 40, temperature=1.0, top_p=0.95, seed=1)
    print("drawn:", repr("".join(alphabet[token] for token in drawn)))
    print(f"{time.perf_counter() - start:.1f} s in all")


if __name__ == "__main__":
    main()
