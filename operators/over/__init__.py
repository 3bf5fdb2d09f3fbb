"""Window functions with an order."""
