"""Window functions over ordered rows."""
