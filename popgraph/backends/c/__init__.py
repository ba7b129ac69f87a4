"""The C backend: a planned program becomes C, a library, and an executable."""
