"""The contestants of the arena: one Llama-like model in each runtime."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
from smollm import CACHED, EMBEDDING, GGUF, MODEL, NORM, PLAIN, WEIGHTS, Shape

from popgraph.support.arrays import Array
from popgraph.support.safetensors import read_all

FORWARD, TOKEN, STEP = TASKS = ("forward", "token", "step")
"""A pass over all tokens, a token after a cache, and a step of training."""
CONTEXT = 64
"""Tokens that fit into a cache."""
RATE, DECAY, BETAS, EPSILON = 1e-3, 0.01, (0.9, 0.999), 1e-8
"""The arguments of AdamW, as in `arena.pgraph`."""


class Decoding(Protocol):
    """A model with a cache."""

    def reset(self) -> None: ...

    def feed(self, tokens: list[int]) -> Any:
        """The logits after the last token."""


class Player(ABC):
    """A contestant: creates what its tasks call."""

    title: ClassVar[str]
    packages: ClassVar[Mapping[str, str]]
    """{module: its distribution}; the first one has the version."""
    how: ClassVar[str]
    """The settings of the runtime, for the page."""
    tasks: ClassVar[Sequence[str]] = TASKS

    def __init__(self, folder: Path, shape: Shape, threads: int) -> None:
        self.folder, self.shape, self.threads = folder, shape, threads
        self.ids = np.arange(shape.length)
        self.labels = (self.ids + 1) % shape.vocabulary

    @classmethod
    def version(cls) -> str:
        return version(next(iter(cls.packages.values())))

    @classmethod
    def missing(cls) -> str:
        """The command that installs the missing packages; "" if all are there."""
        absent = [name for module, name in cls.packages.items() if find_spec(module) is None]
        return f"pip install {' '.join(absent)}" if absent else ""

    @property
    def weights(self) -> dict[str, Array]:
        return read_all(self.folder / WEIGHTS)[0]

    @abstractmethod
    def forward(self) -> Callable[[], Any]:
        """Computes the logits of all tokens."""

    @abstractmethod
    def decoder(self) -> Decoding:
        """The model with an empty cache."""

    def step(self) -> Callable[[], float]:
        """Trains for one step, and returns its loss."""
        raise NotImplementedError(f"{self.title} does not train")


class PopGraph(Player):
    """PopGraph."""

    title, packages = "popgraph", {"popgraph": "popgraph"}
    how = "`popgraph.compile`, `Decoder` and `Trainer.fit`, with default options"

    @classmethod
    def version(cls) -> str:
        import popgraph

        return popgraph.__version__

    def forward(self) -> Callable[[], Any]:
        import popgraph

        run = popgraph.compile(self.folder / MODEL, threads=self.threads)
        ids = self.ids[None]
        return lambda: run(input_ids=ids)["logits"][0]

    def decoder(self) -> Decoding:
        import popgraph

        return popgraph.Decoder(self.folder, max_length=CONTEXT, threads=self.threads)

    def step(self) -> Callable[[], float]:
        import popgraph

        trainer = popgraph.Trainer(self.folder / MODEL, threads=self.threads)
        labels = self.labels[None].astype(np.int32)
        data = {"input_ids": self.ids[None], "labels": labels}
        return lambda: float(trainer.fit(data, epochs=1, batch=1)["loss"][-1])


class Kit(Protocol):
    """The functions of a framework that `logits_of` composes; tensors are [L, heads, size]."""

    def angles(self, positions: Any, shape: Shape) -> tuple[Any, Any]:
        """Cosines and sines, [L, 1, size / 2]."""

    def norm(self, x: Any, weight: Any, epsilon: float) -> Any: ...

    def silu(self, x: Any) -> Any: ...

    def joined(self, first: Any, second: Any) -> Any:
        """Concatenates along the last axis."""

    def extended(self, cache: list[Any], at: int, new: Any, positions: Any) -> Any:
        """A layer's keys or values: stores the new ones, and returns all."""

    def attention(self, q: Any, k: Any, v: Any, positions: Any | None) -> Any:
        """Attention to all keys up to each position, or to a triangle without positions."""


def logits_of(
    kit: Kit,
    weights: Mapping[str, Any],
    shape: Shape,
    ids: Any,
    positions: Any,
    caches: tuple[list[Any], list[Any]] | None = None,
) -> Any:
    """The logits of tokens at positions, which follow those of the caches of keys and values."""
    length = ids.shape[0]
    cosines, sines = kit.angles(positions, shape)

    def rotated(x: Any) -> Any:
        low, high = x[..., : shape.size // 2], x[..., shape.size // 2 :]
        return kit.joined(low * cosines - high * sines, high * cosines + low * sines)

    x = weights[EMBEDDING][ids]
    for at in range(shape.layers):
        layer = {
            name: weights[f"model.layers.{at}.{name}.weight"]
            for name in (
                *("input_layernorm", "post_attention_layernorm"),
                *(f"self_attn.{one}_proj" for one in "qkvo"),
                *(f"mlp.{one}_proj" for one in ("gate", "up", "down")),
            )
        }
        normed = kit.norm(x, layer["input_layernorm"], shape.epsilon)
        q, k, v = (
            (normed @ layer[f"self_attn.{one}_proj"].T).reshape(length, -1, shape.size)
            for one in "qkv"
        )
        q, k = rotated(q), rotated(k)
        if caches is not None:
            k, v = (
                kit.extended(cache, at, new, positions)
                for cache, new in zip(caches, (k, v), strict=True)
            )
        mixed = kit.attention(q, k, v, None if caches is None else positions)
        x = x + mixed.reshape(length, -1) @ layer["self_attn.o_proj"].T
        normed = kit.norm(x, layer["post_attention_layernorm"], shape.epsilon)
        gate, up = (normed @ layer[f"mlp.{one}_proj"].T for one in ("gate", "up"))
        x = x + (kit.silu(gate) * up) @ layer["mlp.down_proj"].T
    return kit.norm(x, weights[NORM], shape.epsilon) @ weights[EMBEDDING].T


class TorchKit:
    """PyTorch's functions."""

    def angles(self, positions: Any, shape: Shape) -> tuple[Any, Any]:
        import torch

        exponents = torch.arange(0, shape.size, 2) / shape.size
        angles = (positions[:, None] / shape.theta**exponents)[:, None]
        return angles.cos(), angles.sin()

    def norm(self, x: Any, weight: Any, epsilon: float) -> Any:
        from torch.nn import functional

        return functional.rms_norm(x, weight.shape, weight, epsilon)

    def silu(self, x: Any) -> Any:
        from torch.nn import functional

        return functional.silu(x)

    def joined(self, first: Any, second: Any) -> Any:
        import torch

        return torch.cat([first, second], -1)

    def extended(self, cache: list[Any], at: int, new: Any, positions: Any) -> Any:
        return cache[at].index_copy_(0, positions, new)

    def attention(self, q: Any, k: Any, v: Any, positions: Any | None) -> Any:
        import torch
        from torch.nn import functional

        mask = None if positions is None else torch.arange(len(k)) <= positions[:, None]
        q, k, v = (one.transpose(0, 1)[None] for one in (q, k, v))
        found = functional.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, is_causal=mask is None, enable_gqa=True
        )
        return found[0].transpose(0, 1)


class Eager(Player):
    """PyTorch, operator by operator."""

    title, packages = "PyTorch eager", {"torch": "torch"}
    how = (
        "`rms_norm` and `scaled_dot_product_attention`, a cache of fixed size, fused AdamW; "
        "`inference_mode` without gradients"
    )

    def __init__(self, folder: Path, shape: Shape, threads: int) -> None:
        super().__init__(folder, shape, threads)
        import torch

        torch.set_num_threads(threads)
        self.tensors = {name: torch.tensor(array) for name, array in self.weights.items()}

    def function(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function as it is run."""
        return function

    def without_gradients(self, function: Callable[..., Any]) -> Callable[..., Any]:
        import torch

        made = self.function(function)

        def run(*arguments: Any) -> Any:
            with torch.inference_mode():
                return made(*arguments)

        return run

    def forward(self) -> Callable[[], Any]:
        import torch

        ids, positions = torch.tensor(self.ids), torch.arange(self.shape.length)
        logits = self.without_gradients(partial(logits_of, TorchKit()))
        return lambda: logits(self.tensors, self.shape, ids, positions).numpy()

    def decoder(self) -> Decoding:
        return TorchDecoding(self)

    def step(self) -> Callable[[], float]:
        import torch
        from torch.nn import functional

        ids, positions = torch.tensor(self.ids), torch.arange(self.shape.length)
        labels = torch.tensor(self.labels)
        for tensor in self.tensors.values():
            tensor.requires_grad_()
        optimizer = torch.optim.AdamW(
            self.tensors.values(), RATE, BETAS, EPSILON, DECAY, fused=True
        )

        def loss_of(weights: Mapping[str, Any]) -> Any:
            logits = logits_of(TorchKit(), weights, self.shape, ids, positions)
            return functional.cross_entropy(logits, labels)

        made = self.function(loss_of)

        def step() -> float:
            optimizer.zero_grad(set_to_none=True)
            loss = made(self.tensors)
            loss.backward()
            optimizer.step()
            return float(loss.item())

        return step


class TorchDecoding:
    """PyTorch with a cache of fixed size, so that a compiled function serves all positions."""

    def __init__(self, player: Eager) -> None:
        self._player = player
        self._logits = player.without_gradients(partial(logits_of, TorchKit()))
        self.reset()

    def reset(self) -> None:
        import torch

        shape = self._player.shape
        empty = torch.zeros(CONTEXT, shape.kv_heads, shape.size)
        self._caches = tuple([empty.clone() for _ in range(shape.layers)] for _ in "kv")
        self._count = 0

    def feed(self, tokens: list[int]) -> Any:
        import torch

        positions = torch.arange(self._count, self._count + len(tokens))
        self._count += len(tokens)
        player = self._player
        given = player.tensors, player.shape, torch.tensor(tokens), positions, self._caches
        return self._logits(*given)[-1].numpy()


class Inductor(Eager):
    """PyTorch's compiler."""

    title, packages = "torch.compile", {"torch": "torch"}
    how = "the same functions by `torch.compile(backend='inductor', dynamic=False)`"

    def function(self, function: Callable[..., Any]) -> Callable[..., Any]:
        import torch

        found: Callable[..., Any] = torch.compile(function, backend="inductor", dynamic=False)
        return found


class OnnxRuntime(Player):
    """onnxruntime, whose wheels do not train."""

    title, packages = "onnxruntime", {"onnxruntime": "onnxruntime"}
    how = (
        "the ONNX file that `arena.pgraph` becomes, and the one with a cache of `decode.py`; "
        "all optimizations, CPUExecutionProvider; its wheels do not train"
    )
    tasks = (FORWARD, TOKEN)

    def forward(self) -> Callable[[], Any]:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self.threads
        session = onnxruntime.InferenceSession(self.folder / PLAIN, options)
        ids = self.ids[None]
        return lambda: session.run(None, {"input_ids": ids})[0][0]

    def decoder(self) -> Decoding:
        from decode import Theirs
        from language_models import Language

        net = Language(CONTEXT, kept=self.shape.kv_heads, size=self.shape.size)
        return Theirs(self.folder / CACHED, net, self.threads)


class JaxKit:
    """JAX's functions."""

    def angles(self, positions: Any, shape: Shape) -> tuple[Any, Any]:
        from jax import numpy

        exponents = np.arange(0, shape.size, 2, dtype=np.float32) / np.float32(shape.size)
        angles = (positions[:, None] / shape.theta**exponents)[:, None]
        return numpy.cos(angles), numpy.sin(angles)

    def norm(self, x: Any, weight: Any, epsilon: float) -> Any:
        from jax import lax

        return x * lax.rsqrt((x * x).mean(-1, keepdims=True) + epsilon) * weight

    def silu(self, x: Any) -> Any:
        import jax

        return jax.nn.silu(x)

    def joined(self, first: Any, second: Any) -> Any:
        from jax import numpy

        return numpy.concatenate([first, second], -1)

    def extended(self, cache: list[Any], at: int, new: Any, positions: Any) -> Any:
        from jax import lax

        cache[at] = lax.dynamic_update_slice_in_dim(cache[at], new, positions[0], 0)
        return cache[at]

    def attention(self, q: Any, k: Any, v: Any, positions: Any | None) -> Any:
        import jax
        from jax import numpy

        mask = None if positions is None else numpy.arange(len(k)) <= positions[:, None]
        mask = mask if mask is None else mask[None, None]
        given = (one[None] for one in (q, k, v))
        return jax.nn.dot_product_attention(*given, mask=mask, is_causal=mask is None)[0]


class Jax(Player):
    """JAX on its CPU backend."""

    title, packages = "JAX", {"jax": "jax"}
    how = (
        "`jax.jit`, `dot_product_attention`, a cache of fixed size and weights that are donated, "
        "AdamW by hand; its threads follow the cores that the process may use"
    )

    def __init__(self, folder: Path, shape: Shape, threads: int) -> None:
        super().__init__(folder, shape, threads)
        from jax import numpy

        self.arrays = {name: numpy.array(array) for name, array in self.weights.items()}

    def forward(self) -> Callable[[], Any]:
        import jax

        logits = jax.jit(partial(logits_of, JaxKit()), static_argnums=1)
        positions = np.arange(self.shape.length)
        return lambda: np.asarray(logits(self.arrays, self.shape, self.ids, positions))

    def decoder(self) -> Decoding:
        return JaxDecoding(self)

    def step(self) -> Callable[[], float]:
        import jax
        from jax import numpy

        positions = np.arange(self.shape.length)

        def loss_of(weights: Mapping[str, Any]) -> Any:
            logits = logits_of(JaxKit(), weights, self.shape, self.ids, positions)
            return -jax.nn.log_softmax(logits)[positions, self.labels].mean()

        def updated(count: Any, weight: Any, gradient: Any, m: Any, v: Any) -> Any:
            m = BETAS[0] * m + (1 - BETAS[0]) * gradient
            v = BETAS[1] * v + (1 - BETAS[1]) * gradient * gradient
            mean, square = m / (1 - BETAS[0] ** count), v / (1 - BETAS[1] ** count)
            weight = weight * (1 - RATE * DECAY) - RATE * mean / (numpy.sqrt(square) + EPSILON)
            return weight, m, v

        @partial(jax.jit, donate_argnums=0)
        def train(state: Any, count: Any) -> Any:
            loss, gradients = jax.value_and_grad(loss_of)({name: s[0] for name, s in state.items()})
            made = {
                name: updated(count, weight, gradients[name], m, v)
                for name, (weight, m, v) in state.items()
            }
            return made, loss

        state = {
            name: (array, numpy.zeros_like(array), numpy.zeros_like(array))
            for name, array in self.arrays.items()
        }
        self.arrays = {}  # Donated: the first step overwrites them.
        count = 0

        def step() -> float:
            nonlocal state, count
            count += 1
            state, loss = train(state, np.float32(count))
            jax.block_until_ready(state)
            return float(loss)

        return step


class JaxDecoding:
    """JAX with a cache of fixed size, which each token overwrites."""

    def __init__(self, player: Jax) -> None:
        import jax

        self._player = player

        def last(weights: Any, ids: Any, positions: Any, caches: Any) -> Any:
            logits = logits_of(JaxKit(), weights, player.shape, ids, positions, caches)
            return logits[-1], caches

        self._last = jax.jit(last, donate_argnums=3)
        self.reset()

    def reset(self) -> None:
        from jax import numpy

        shape = self._player.shape
        self._caches = tuple(
            [numpy.zeros((CONTEXT, shape.kv_heads, shape.size)) for _ in range(shape.layers)]
            for _ in "kv"
        )
        self._count = 0

    def feed(self, tokens: list[int]) -> Any:
        positions = np.arange(self._count, self._count + len(tokens))
        self._count += len(tokens)
        given = self._player.arrays, np.array(tokens), positions, self._caches
        logits, self._caches = self._last(*given)
        return np.asarray(logits)


class LlamaCpp(Player):
    """llama.cpp by its Python package."""

    title, packages = "llama.cpp", {"llama_cpp": "llama-cpp-python", "gguf": "gguf"}
    how = (
        "`Llama(...).eval` of a GGUF file in f32, a cache in f32, logits of all tokens; pip builds "
        "it from source for this machine; it has no training in Python"
    )
    tasks = (FORWARD, TOKEN)

    def model(self) -> Any:
        from llama_cpp import GGML_TYPE_F32, Llama

        return Llama(
            str(self.folder / GGUF),
            n_ctx=max(self.shape.length, CONTEXT),
            n_batch=self.shape.length,
            n_threads=self.threads,
            n_threads_batch=self.threads,
            type_k=GGML_TYPE_F32,
            type_v=GGML_TYPE_F32,
            logits_all=True,
            verbose=False,
        )

    def forward(self) -> Callable[[], Any]:
        model, ids = self.model(), self.ids.tolist()

        def run() -> Any:
            model.reset()
            model.eval(ids)
            return model.scores[: len(ids)]

        return run

    def decoder(self) -> Decoding:
        return LlamaDecoding(self.model())


class LlamaDecoding:
    """llama.cpp with its own cache."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self.reset()

    def reset(self) -> None:
        self._model.reset()

    def feed(self, tokens: list[int]) -> Any:
        self._model.eval(tokens)
        return self._model.scores[self._model.n_tokens - 1]


PLAYERS: tuple[type[Player], ...] = (PopGraph, Eager, Inductor, OnnxRuntime, Jax, LlamaCpp)
