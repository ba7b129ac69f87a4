"""Loops of fused kernels: chains of contractions, nests of rows."""
