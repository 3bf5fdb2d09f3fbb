"""Execution of physical plan nodes over blocks, for all engines: calcs, expressions and the members of a stage."""
