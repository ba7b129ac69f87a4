"""Packages that exported C is written as, such as an npm package, one module per kind."""
