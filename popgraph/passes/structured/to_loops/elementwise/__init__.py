"""Loops of elementwise maps, scatters and choices of elements."""
