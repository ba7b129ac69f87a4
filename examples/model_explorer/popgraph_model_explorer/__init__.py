"""An extension of Model Explorer, which looks for its adapter in `main`."""
