"""Checks of `.pgraph` texts: names, scopes, operators, types, annotations, imports."""
