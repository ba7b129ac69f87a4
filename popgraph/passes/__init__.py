"""The passes: each file is one, `pipeline.py` is their order."""
