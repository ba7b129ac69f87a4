"""Fusion: elementwise work, epilogues, rows, attention, channels."""
