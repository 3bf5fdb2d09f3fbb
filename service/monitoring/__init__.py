"""Monitoring of a running job: metrics, status, incidents, traces."""
