"""Execution of physical plan nodes over blocks, on every engine: calcs, expressions, members of a stage."""
