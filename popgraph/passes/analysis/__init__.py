"""Analyses of modules of any level."""
