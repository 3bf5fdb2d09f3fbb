"""A query of a job, assembled from its plan: source, stages, sink; and the in-memory engine."""
