"""Functions of the job's own, in Python: where their code is, how it comes to a worker, and how it is called."""
