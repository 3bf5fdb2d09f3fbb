"""How the nodes of a physical plan run over blocks, on every engine: calcs, expressions, members of a stage."""
