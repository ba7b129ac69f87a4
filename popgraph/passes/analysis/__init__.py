"""Analyses of modules at any level."""
