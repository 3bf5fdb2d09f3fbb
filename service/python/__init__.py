"""A job's Python functions: where their code is, how it reaches the workers, and how it is called."""
