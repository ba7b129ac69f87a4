"""Loops of reductions."""
