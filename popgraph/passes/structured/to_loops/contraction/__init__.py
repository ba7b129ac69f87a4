"""Loops of contractions: the tile nest, micro-kernels, epilogues, prefetches."""
