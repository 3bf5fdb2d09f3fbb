"""Use Rowkind from Python: `python from_python.py orders-payments/job.yaml`. The job's topics must exist.

The script inserts an order into the table `orders`, updates it, and prints the changes and the rows in the table's
topic. A sink is read in the same way.
"""

import sys
from datetime import UTC, datetime

from rowkind.client import Producer, changes, table

job = sys.argv[1]
order = {"order_id": 1, "customer": "Ada", "amount": "12.50", "status": "new", "placed": datetime.now(UTC)}
with Producer(job, "orders") as orders:
    orders.insert(order)
    orders.update(order, order | {"status": "shipped"})
for change in changes(job, "orders"):
    print(change.kind, change.row)
print(table(job, "orders").to_pandas())
