"""Ranks: processes that run one program together, each on its own data."""

from __future__ import annotations
