"""Rendering of physical plans for people and programs: as a text tree, JSON, a flowchart or an HTML page."""
