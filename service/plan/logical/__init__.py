"""The logical plan: what the query means, as a tree of frozen nodes that passes rewrite."""
