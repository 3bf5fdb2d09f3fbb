"""Execution of physical plan nodes over blocks, for every engine: calcs, expressions and the members of a stage."""
