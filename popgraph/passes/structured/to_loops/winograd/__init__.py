"""Loops of Winograd's transforms and of the products between them."""
