"""Generators of the docs pages, JSON Schema and dashboards in the repository. They are not part of the wheel."""
