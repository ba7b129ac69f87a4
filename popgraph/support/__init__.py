"""The bottom layer: errors, debug settings, element types, shapes, files and caches."""
