"""Use a job's topics from Python: produce to its tables, and read its sinks.

from rowkind.client import Producer, changes, table

with Producer("job.yaml", "orders") as orders:
orders.insert({"order_id": 1, "amount": "12.50"})
for change in changes("job.yaml", "paid_orders", follow=True):
print(change.kind, change.row)
table("job.yaml", "paid_orders")    # a pyarrow.Table of the current rows
"""

from rowkind.service.client.consume import Change, changes, table
from rowkind.service.client.produce import Producer

__all__ = ["Change", "Producer", "changes", "table"]
