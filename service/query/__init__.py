"""A job's queries, assembled from their plans: source, stages and sink; and the in-memory engine."""
