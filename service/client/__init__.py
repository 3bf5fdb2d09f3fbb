"""Client library for a job's topics: programs produce to its tables, and consume its sinks and tables."""
