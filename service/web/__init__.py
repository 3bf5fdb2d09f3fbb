"""The HTTP port of a job or service: its server and its pages."""
