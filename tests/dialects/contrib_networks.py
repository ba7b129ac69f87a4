"""Nodes of the operators that onnxruntime has for parts of newer networks."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.dialects.contrib_sample import Sample, draw


def gates() -> list[Sample]:
    x, half = draw(2, 3, 8), np.float16
    grouped = [(2, 3), (2, 3, 1), (2, 3, 8)]
    flattened = [(2, 3, 4), (2, 3, 4, 1), (2, 3, 4, 2)]
    four: dict[str, Any] = {"num_branches": 4}
    engram = [draw(2, 3, 4, 8), draw(2, 3, 4, 8), draw(2, 3, 8), draw(4, 8), draw(4, 8)]
    return [
        Sample("ScaledSiLU", [x], attributes={"alpha": 0.3}),
        Sample("ScaledSiLU", [x.astype(half), np.array(0.7, np.float32)]),
        Sample("GatedAdd", [x, draw(2, 3, 8), draw(2, 3, 1)]),
        *(
            Sample("GatedRMSNorm", [x, draw(4), draw(2, 3, 8)], attributes={"activation": kind})
            for kind in ("silu", "swish", "sigmoid")
        ),
        Sample("GatedRMSNorm", [x.astype(half), draw(8).astype(half), x.astype(half)]),
        Sample("BranchwiseRMSNorm", [x], attributes={"epsilon": 0.1}),
        *(Sample("BranchwiseRMSNorm", [x, draw(*shape)]) for shape in [(8,), (24,), (3, 8)]),
        *(
            Sample("BranchwiseRMSNorm", [x, draw(*shape)], ["y"], four)
            for shape in [(8,), (2,), (4, 2)]
        ),
        *(
            Sample("HyperConnectionPreMix", [x, draw(*shape)], ["y"], {"reduction_scale": 0.5})
            for shape in grouped
        ),
        *(
            Sample("HyperConnectionPreMix", [x, draw(*shape)], ["y"], four)
            for shape in [*flattened, (2, 3, 8)]
        ),
        *(
            Sample("HyperConnectionPostMix", [x, draw(2, 8), draw(*shape), draw(2, 3, 3)])
            for shape in grouped
        ),
        *(
            Sample("HyperConnectionPostMix", [x, draw(2, 3, 2), draw(*shape)], ["y"], four)
            for shape in flattened
        ),
        Sample(
            "HyperConnectionPostMix",
            [x, draw(2, 3, 2), draw(2, 3, 4), draw(2, 3, 4, 4)],
            ["y"],
            four,
        ),
        Sample("EngramGate", engram),
        Sample("EngramGate", [*engram, draw(4, 8)], ["y", "n"], {"epsilon": 0.1}),
        Sample("LinearAttentionGate", [draw(2, 3, 4), draw(4), draw(4)]),
        Sample("LinearAttentionGate", [draw(2, 3, 4), draw(4), draw(4), draw(2, 3, 4)], ["d", "b"]),
    ]


NETWORKS = [*gates()]
