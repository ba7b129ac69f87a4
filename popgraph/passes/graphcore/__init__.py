"""Passes over the graphcore level, and its lowering to structured operations."""
