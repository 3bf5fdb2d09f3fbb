"""Generators of the pages, the schema and the dashboards that the repository keeps as files. None is in the wheel."""
