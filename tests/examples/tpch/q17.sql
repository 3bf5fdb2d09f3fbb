-- An average of decimals is a DOUBLE here, and 0.2 times it may be a little more than the quantity that it is.
SELECT SUM(l_extendedprice) / 7.0 AS avg_yearly
FROM lineitem, part
WHERE p_partkey = l_partkey AND p_brand = 'Brand#23' AND p_container = 'MED BOX'
  AND 5 * l_quantity * (SELECT COUNT(*) FROM lineitem WHERE l_partkey = p_partkey)
    < (SELECT SUM(l_quantity) FROM lineitem WHERE l_partkey = p_partkey)
