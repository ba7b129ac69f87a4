"""How do tests have small work shared between threads? All that can be is worth it here."""

from __future__ import annotations

import pytest

from popgraph.passes.structured.parallel import parallel_cost as sharing_costs

THREADS = 3


def share_all(patch: pytest.MonkeyPatch, grain: int) -> None:
    """Whatever does more than twice `grain` is shared, since nothing but uneven work costs."""
    patch.setattr(sharing_costs, "GRAIN", grain)
    patch.setattr(sharing_costs, "START", 0)
    patch.setattr(sharing_costs, "MOST", 2)
    for name in ("FAR", "APART", "NEAR"):
        patch.setattr(sharing_costs, name, 1e12)
