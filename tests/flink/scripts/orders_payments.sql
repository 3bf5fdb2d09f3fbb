-- Orders with what was paid for them, kept up to date from two topics.
SET 'table.exec.state.ttl' = '30 d';
SET 'parallelism.default' = '4';
SET 'state.checkpoints.dir' = 'file:///var/lib/rowkind/orders';

CREATE TABLE orders (
  order_id BIGINT,
  customer STRING,
  pieces INT,
  price DECIMAL(10, 2),
  placed TIMESTAMP(3),
  PRIMARY KEY (order_id) NOT ENFORCED
) WITH (
  'connector' = 'kafka',
  'topic' = 'shop.orders',
  'properties.bootstrap.servers' = 'kafka:9092',
  'properties.group.id' = 'orders-payments',
  'format' = 'debezium-avro-confluent',
  'debezium-avro-confluent.url' = 'http://registry:8081',
  'scan.startup.mode' = 'earliest-offset'
);

CREATE TABLE payments (
  payment_id BIGINT,
  order_id BIGINT,
  paid DECIMAL(10, 2),
  reference STRING
) WITH (
  'connector' = 'kafka',
  'topic' = 'payments',
  'properties.bootstrap.servers' = 'kafka:9092',
  'format' = 'json'
);

CREATE TABLE totals (
  order_id BIGINT,
  customer STRING,
  paid DECIMAL(12, 2),
  boxes INT,
  placed_on DATE,
  PRIMARY KEY (order_id) NOT ENFORCED
) WITH (
  'connector' = 'upsert-kafka',
  'topic' = 'totals',
  'properties.bootstrap.servers' = 'kafka:9092',
  'key.format' = 'json',
  'value.format' = 'json'
);

CREATE TEMPORARY VIEW paid (id, amount) AS
  SELECT order_id, SUM(paid)
  FROM payments  -- all of them but those for gifts
  WHERE SPLIT_INDEX(reference, '-', 1) <> 'it''s a gift'
  GROUP BY order_id;

INSERT INTO totals
SELECT /*+ STATE_TTL('o' = '7 days') */ o.order_id, UPPER(o.`customer`), p.amount, o.pieces / 2,
       CAST(FLOOR(o.placed TO DAY) AS DATE)
FROM default_catalog.default_database.orders AS o
JOIN paid AS p ON p.id = o.order_id;
