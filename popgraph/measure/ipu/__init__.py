"""What a program would take on IPUs: cycles of its steps, and memory of their tiles, by a model."""

from popgraph.measure.ipu.model import IpuModel

__all__ = ["IpuModel"]
