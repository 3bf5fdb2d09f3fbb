"""What a job's topics are to programs beside it: they produce to tables, and consume what sinks and tables hold."""
