"""Loops of elementwise maps and scatters."""
