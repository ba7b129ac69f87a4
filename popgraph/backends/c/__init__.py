"""The C backend: prints a planned program as C, compiles it to a library, and runs it."""
