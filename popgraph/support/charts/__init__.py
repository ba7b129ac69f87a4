"""Charts of curves, drawn as SVG for pages and notebooks and as text for terminals."""
