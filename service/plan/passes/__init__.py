"""The passes over the logical plan, one function each, in the order of `service.plan.phases`.

The docstring of each pass shows a plan before and after it. `tests/plan/test_pass_examples.py` runs these examples.
"""
