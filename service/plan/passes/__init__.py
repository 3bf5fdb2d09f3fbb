"""The passes over the logical plan, one function each, in the order of `service.plan.phases`."""
