"""Emission: the writer of loops, index arithmetic, memory accesses, vectors."""
