"""Loops that move memory: copies, packing, concatenation."""
