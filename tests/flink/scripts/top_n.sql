-- Top-N and deduplication, in one statement set
SET 'pipeline.name' = 'Product ranking';
SET execution.checkpointing.interval = 10s;
CREATE TABLE sales (
  sale_id STRING,
  product STRING,
  category STRING,
  amount DECIMAL(10, 2),
  tags ARRAY<STRING>,
  buyer ROW<name STRING, address ROW<city STRING, zip VARCHAR(10)>>,
  proctime AS PROCTIME(),
  cents AS CAST(amount * 100 AS BIGINT),
  sold_at TIMESTAMP_LTZ(3) METADATA FROM 'timestamp' VIRTUAL
) WITH (
  'connector' = 'kafka',
  'topic' = 'sales',
  'properties.bootstrap.servers' = 'kafka:9092',
  'properties.security.protocol' = 'SASL_SSL',
  'properties.sasl.mechanism' = 'PLAIN',
  'properties.sasl.jaas.config' = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="ranker" password="s3cret";',
  'format' = 'json',
  'json.ignore-parse-errors' = 'true',
  'scan.startup.mode' = 'timestamp',
  'scan.startup.timestamp-millis' = '1767225600000'
);
CREATE TABLE top_products (
  category STRING, rank_no BIGINT, product STRING, total DECIMAL(38, 2),
  PRIMARY KEY (category, rank_no) NOT ENFORCED
) WITH ('connector' = 'upsert-kafka', 'topic' = 'top-products', 'properties.bootstrap.servers' = 'kafka:9092',
  'key.format' = 'avro-confluent', 'key.avro-confluent.url' = 'http://registry:8081',
  'value.format' = 'avro-confluent', 'value.avro-confluent.url' = 'http://registry:8081');
CREATE TABLE first_sales (
  sale_id STRING, city STRING, cents BIGINT, PRIMARY KEY (sale_id) NOT ENFORCED
) WITH ('connector' = 'jdbc', 'url' = 'jdbc:mysql://x/y', 'table-name' = 'first_sales');
CREATE TABLE running_sales (
  sale_id STRING, sold DECIMAL(38, 2)
) WITH ('connector' = 'kafka', 'topic' = 'running-sales', 'properties.bootstrap.servers' = 'kafka:9092',
  'format' = 'json');

EXECUTE STATEMENT SET
BEGIN
INSERT INTO top_products
SELECT category, rn, product, total FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY category ORDER BY total DESC) AS rn
  FROM (SELECT category, product, SUM(amount) AS total FROM sales GROUP BY category, product)
) WHERE rn <= 3;
INSERT INTO first_sales
SELECT sale_id, buyer.address.city, cents FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY sale_id ORDER BY proctime ASC) AS rn FROM sales
) WHERE rn = 1;
INSERT INTO running_sales
SELECT sale_id, SUM(amount) OVER (PARTITION BY product ORDER BY proctime ROWS BETWEEN 10 PRECEDING AND CURRENT ROW)
FROM sales;
END;
