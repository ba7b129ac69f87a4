"""Passes over kernels whose loops are written out."""
