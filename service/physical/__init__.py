"""The physical plan: what runs, as plain frozen values that pickle."""
