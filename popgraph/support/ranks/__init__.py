"""Ranks: processes that run one program together, each with data of its own."""

from __future__ import annotations
