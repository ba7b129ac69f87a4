"""An extension of PopGraph, with one of each kind."""
