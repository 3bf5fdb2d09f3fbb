-- Temporal joins as Flink's pages write them: the version at a time, and what is there by processing time.
CREATE TABLE orders (
  order_id STRING,
  price DECIMAL(32, 2),
  currency STRING,
  customer_id BIGINT,
  order_time TIMESTAMP(3),
  proc_time AS PROCTIME(),
  WATERMARK FOR order_time AS order_time - INTERVAL '15' SECOND
) WITH ('connector' = 'kafka', 'topic' = 'orders', 'properties.bootstrap.servers' = 'kafka:9092', 'format' = 'json');
CREATE TABLE currency_rates (
  currency STRING,
  conversion_rate DECIMAL(32, 2),
  update_time TIMESTAMP(3),
  WATERMARK FOR update_time AS update_time - INTERVAL '15' SECOND,
  PRIMARY KEY (currency) NOT ENFORCED
) WITH ('connector' = 'upsert-kafka', 'topic' = 'rates', 'properties.bootstrap.servers' = 'kafka:9092',
  'key.format' = 'json', 'value.format' = 'json');
CREATE TABLE customers (id BIGINT, name STRING, zip STRING, PRIMARY KEY (id) NOT ENFORCED)
  WITH ('connector' = 'upsert-kafka', 'topic' = 'customers', 'properties.bootstrap.servers' = 'kafka:9092',
  'key.format' = 'json', 'value.format' = 'json');
CREATE TABLE rates_history (currency STRING, rate DECIMAL(32, 2), noted TIMESTAMP(3),
  WATERMARK FOR noted AS noted - INTERVAL '15' SECOND)
  WITH ('connector' = 'kafka', 'topic' = 'history', 'properties.bootstrap.servers' = 'kafka:9092', 'format' = 'json');
CREATE VIEW versioned_rates AS
SELECT currency, rate, noted
FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY currency ORDER BY noted DESC) AS rownum FROM rates_history)
WHERE rownum = 1;
CREATE TABLE converted (order_id STRING, price DECIMAL(32, 2), conversion_rate DECIMAL(32, 2), order_time TIMESTAMP(3))
  WITH ('connector' = 'kafka', 'topic' = 'converted', 'properties.bootstrap.servers' = 'kafka:9092', 'format' = 'json');
CREATE TABLE reconverted WITH ('topic' = 'reconverted') LIKE converted;
CREATE TABLE enriched (order_id STRING, name STRING, zip STRING)
  WITH ('connector' = 'kafka', 'topic' = 'enriched', 'properties.bootstrap.servers' = 'kafka:9092', 'format' = 'json');

INSERT INTO converted
SELECT order_id, price, conversion_rate, order_time
FROM orders
LEFT JOIN currency_rates FOR SYSTEM_TIME AS OF orders.order_time
ON orders.currency = currency_rates.currency;

INSERT INTO reconverted
SELECT order_id, price, rate, order_time
FROM orders
JOIN versioned_rates FOR SYSTEM_TIME AS OF orders.order_time
ON orders.currency = versioned_rates.currency;

INSERT INTO enriched
SELECT o.order_id, c.name, c.zip
FROM orders AS o
  JOIN customers FOR SYSTEM_TIME AS OF o.proc_time AS c
    ON o.customer_id = c.id;
