"""Running a job: its process, its lifecycle, supervision of its queries, dead letters."""
