"""Parallel loops: which parts of a kernel threads split."""
