"""Runs on every rank: one rank fails while the others wait for it."""

from __future__ import annotations

import numpy as np

from popgraph.support.ranks.communicator import Exchange
from popgraph.support.ranks.world import world

here = world()
if here.rank == 1:
    raise ValueError("no more of this")
here.exchange(Exchange("all_reduce", 1, here.size), np.ones(4))
print("came to the end")
