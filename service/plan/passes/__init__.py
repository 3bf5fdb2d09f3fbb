"""The passes over the logical plan, one function each. `service.plan.phases` defines their order.

The docstring of each pass shows a plan before and after the pass. `tests/plan/test_pass_examples.py` runs these
examples.
"""
