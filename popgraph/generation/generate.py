"""`popgraph.generate`: a causal language model and a prompt in, the tokens that follow out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from popgraph.backends.registry import DEFAULT
from popgraph.generation.decoder import Decoder, Prompts
from popgraph.support.argument_types import check_types
from popgraph.support.arrays import Array

if TYPE_CHECKING:
    from popgraph.passes.options import Options


@check_types("max_new_tokens")
def generate(
    model: Any,
    ids: Prompts,
    max_new_tokens: int = 20,
    *,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    repetition_penalty: float = 1.0,
    stop: Any = (),
    seed: int | None = None,
    max_length: int | None = None,
    cache: bool = True,
    threads: int = 1,
    backend: str = DEFAULT,
    options: Options | None = None,
) -> Array | list[Array]:
    """
    The tokens that follow a prompt: an array, or a list of arrays for a list of prompts.

    `model` is anything that `popgraph.compile` takes or gives, or a `Decoder`, which begins anew.
    It has `input_ids` and `logits`, perhaps `attention_mask` and `position_ids`, and for a cache
    `past_key_values.N.key` and `.value`, `present.N.key` and `.value`.
    Temperature 0 is greedy. Else a token is drawn from softmax(logits / temperature), of the
    `top_k` most likely ones, and of the fewest whose probabilities sum to `top_p`.
    `repetition_penalty` divides the logits of tokens in the text (it multiplies negative ones).
    The same `seed` gives the same tokens; each prompt draws numbers of its own.
    `stop` is a token, or a list of tokens and sequences of tokens: a text ends with the first one.
    `max_length`, `cache`, `threads`, `backend` and `options` are arguments of `Decoder`.
    """
    decoder = model if isinstance(model, Decoder) else None
    if decoder is None:
        decoder = Decoder(
            model,
            max_length=max_length,
            cache=cache,
            threads=threads,
            backend=backend,
            options=options,
        )
    decoder.reset()
    made = decoder.stream(
        ids,
        max_new_tokens,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        repetition_penalty=repetition_penalty,
        stop=stop,
        seed=seed,
    )
    starts = [len(row) for row in decoder.tokens]
    is_batch = decoder.is_batch
    for _ in made:
        pass
    found = [row[start:] for row, start in zip(decoder.tokens, starts, strict=True)]
    return found if is_batch else np.asarray(found[0])
