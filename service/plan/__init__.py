"""The planner, which compiles SQL to a physical plan in a pipeline of passes (`service.plan.pipeline`).

Importing this package is cheap: workers that only execute a plan never load the SQL parser.
"""
