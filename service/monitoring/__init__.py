"""What is known of a running job: metrics, status, incidents, traces."""
