"""The passes, one file each; `pipeline.py` has their order."""
