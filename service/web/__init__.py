"""The HTTP server of a job or a multi-job service, and its pages."""
