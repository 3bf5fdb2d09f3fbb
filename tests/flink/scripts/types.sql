-- Types decide: divisions and means of whole numbers, computed columns in their place, intervals.
CREATE TABLE t (a INT, `from` AS a + 1, d DOUBLE, at TIMESTAMP(3), s STRING)
  WITH ('connector'='kafka','format'='json');
CREATE VIEW v AS SELECT a, AVG(a) / 2 AS h, AVG(a / 2) / 3 AS i FROM t GROUP BY a;
CREATE TABLE o1 (a INT, at TIMESTAMP(3), d DOUBLE, x INT)
  WITH ('connector'='kafka','format'='json');
CREATE TABLE o2 (a INT, h INT, i INT, PRIMARY KEY (a) NOT ENFORCED)
  WITH ('connector'='upsert-kafka','key.format'='json', 'value.format'='json');
CREATE TABLE o3 (a INT, h INT, PRIMARY KEY (a) NOT ENFORCED)
  WITH ('connector'='upsert-kafka','key.format'='json', 'value.format'='json');
INSERT INTO o1 SELECT t.`from`, at + INTERVAL '1' DAY, FLOOR(d) / 2, a FROM t;
INSERT INTO o2 SELECT * FROM v;
INSERT INTO o3 SELECT a, h FROM v WHERE a > 0;
