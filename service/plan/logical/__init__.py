"""The logical plan: the meaning of a query, as a tree of frozen nodes that passes rewrite."""
