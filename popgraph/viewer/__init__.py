"""The viewer: a model, its way down to C and its memory, as one page in a browser."""
