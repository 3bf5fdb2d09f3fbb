-- Everything in here is carried over.
SET 'pipeline.name' = 'customers-by-country';
SET 'table.exec.sink.not-null-enforcer' = 'DROP';
CREATE TABLE customers (
  id BIGINT,
  country CHAR(2),
  tags ARRAY<VARCHAR(20)>,
  address ROW<city STRING, parts MAP<STRING, ARRAY<INT>>>,
  PRIMARY KEY (id) NOT ENFORCED
) WITH (
  'connector' = 'kafka', 'topic' = 'customers', 'properties.bootstrap.servers' = 'localhost:9092',
  'format' = 'debezium-json', 'scan.startup.mode' = 'specific-offsets',
  'scan.startup.specific-offsets' = 'partition:0,offset:42;partition:1,offset:300'
);
CREATE TABLE by_country (
  country CHAR(2), customers BIGINT, mean_id BIGINT, PRIMARY KEY (country) NOT ENFORCED
) WITH (
  'connector' = 'upsert-kafka', 'topic' = 'by-country', 'properties.bootstrap.servers' = 'localhost:9092',
  'key.format' = 'json', 'value.format' = 'json'
);
INSERT INTO by_country SELECT country, COUNT(*), AVG(id) FROM customers GROUP BY country;
