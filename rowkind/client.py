"""Use a job's topics from Python: produce to its tables, and read its sinks.

This example inserts a row, reads the current rows of a sink, and follows its changes:

    from rowkind.client import Producer, changes, table

    with Producer("job.yaml", "orders") as orders:
        orders.insert({"order_id": 1, "amount": "12.50"})
    table("job.yaml", "paid_orders")    # a pyarrow.Table of the current rows
    for change in changes("job.yaml", "paid_orders", follow=True):
        print(change.kind, change.row)
"""

from rowkind.service.client.consume import Change, changes, table
from rowkind.service.client.produce import Producer

__all__ = ["Change", "Producer", "changes", "table"]
