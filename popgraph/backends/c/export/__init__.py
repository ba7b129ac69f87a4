"""Export: a model as C with an interface of named arrays, for use in other software."""
