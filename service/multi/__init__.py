"""The multi-job service, which runs several jobs."""
