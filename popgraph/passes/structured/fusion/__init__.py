"""Fusion of elementwise maps, epilogues, rows, attention and channels."""
