"""Pipeline parallelism: assigns operations to stages, and cuts the graph into stages."""
