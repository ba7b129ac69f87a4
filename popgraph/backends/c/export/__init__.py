"""Export: a model as C with an interface of named arrays, to be built into other software."""
