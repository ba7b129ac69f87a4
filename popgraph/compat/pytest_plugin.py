"""The pytest plugin of `python -m popgraph.compat -m pytest`, which makes PopART importable."""

from __future__ import annotations

import os

from popgraph.compat import enable
from popgraph.compat.eras import ERA_VARIABLE

enable(os.environ.get(ERA_VARIABLE))
