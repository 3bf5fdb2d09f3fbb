"""Running a job: assembling queries, lifecycle, status, the in-memory engine."""
