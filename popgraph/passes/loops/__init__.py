"""Passes over the loops level: kernels that are written out."""
