"""Running a job: assembling queries, life cycle, status, the in-memory engine."""
