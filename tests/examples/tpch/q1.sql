-- Averages of decimals are DOUBLEs here. In Spark they are decimals, rounded to six places with halves away from zero:
-- so they are made of whole numbers.
SELECT l_returnflag, l_linestatus, sum_qty, sum_base_price, sum_disc_price, sum_charge,
       (CAST(2000000 * sum_qty AS HUGEINT) + n) // (2 * n) * 0.000001 AS avg_qty,
       (CAST(2000000 * sum_base_price AS HUGEINT) + n) // (2 * n) * 0.000001 AS avg_price,
       (CAST(2000000 * sum_disc AS HUGEINT) + n) // (2 * n) * 0.000001 AS avg_disc,
       n AS count_order
FROM (
  SELECT l_returnflag, l_linestatus,
         SUM(l_quantity) AS sum_qty,
         SUM(l_extendedprice) AS sum_base_price,
         SUM(l_extendedprice * (1 - l_discount)) AS sum_disc_price,
         SUM(l_extendedprice * (1 - l_discount) * (1 + l_tax)) AS sum_charge,
         SUM(l_discount) AS sum_disc,
         COUNT(*) AS n
  FROM lineitem
  WHERE l_shipdate <= DATE '1998-12-01' - INTERVAL '90' DAY
  GROUP BY l_returnflag, l_linestatus
)
