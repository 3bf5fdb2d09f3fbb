"""A plan for people and for programs: as a tree, JSON, a flowchart or a page."""
