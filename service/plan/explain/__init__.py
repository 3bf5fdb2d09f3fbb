"""Renders a physical plan for readers and programs: as a tree, JSON, a flowchart or an HTML page."""
