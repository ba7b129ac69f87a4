"""Analyses of structured operations: maps, loops, panels, epilogues, in-place concatenation."""
