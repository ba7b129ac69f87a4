"""PopART's IR of a session as its serializer writes it: a view, which nothing is compiled from."""
