-- What a job file cannot say, and beside it what it can.
ADD JAR '/jars/functions.jar';
CREATE CATALOG shop WITH ('type' = 'hive');
USE CATALOG shop;
SET 'table.local-time-zone' = 'Europe/Berlin';
SET 'execution.checkpointing.interval' = '10s';
CREATE FUNCTION masked AS 'com.example.Masked';
CREATE TABLE bids (
  auction BIGINT,
  price BIGINT,
  bidders MULTISET<STRING>,
  at TIMESTAMP(3),
  partition_no INT METADATA FROM 'partition' VIRTUAL,
  WATERMARK FOR at AS at - INTERVAL '5' SECOND
) WITH ('connector' = 'kafka', 'topic' = 'bids', 'properties.bootstrap.servers' = 'kafka:9092', 'format' = 'avro-confluent',
  'avro-confluent.url' = 'http://registry:8081', 'avro-confluent.subject' = 'bid', 'scan.bounded.mode' = 'latest-offset');
CREATE TABLE rates (currency STRING, rate DOUBLE, PRIMARY KEY (currency) NOT ENFORCED)
  WITH ('connector' = 'mysql-cdc', 'hostname' = 'db', 'table-name' = 'rates');
CREATE TABLE unused (a INT) WITH ('connector' = 'datagen');
CREATE TABLE sunk (auction BIGINT, n BIGINT) WITH ('connector' = 'print');
CREATE TABLE windows LIKE sunk;
CREATE TABLE joined LIKE sunk;
CREATE TABLE patterns LIKE sunk;
CREATE TABLE clocks LIKE sunk;
CREATE TABLE enveloped (auction BIGINT, rate DOUBLE) WITH ('connector' = 'kafka', 'topic' = 'enveloped',
  'properties.bootstrap.servers' = 'other:9092', 'format' = 'debezium-json');

INSERT INTO windows SELECT auction, COUNT(*)
FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(at), INTERVAL '10' MINUTES)) GROUP BY auction, window_start, window_end;
INSERT INTO joined SELECT b.auction, b.price FROM bids AS b JOIN rates FOR SYSTEM_TIME AS OF b.at AS r ON r.rate = b.price;
INSERT INTO patterns SELECT * FROM bids MATCH_RECOGNIZE (ORDER BY at MEASURES A.price AS p PATTERN (A B) DEFINE A AS TRUE);
INSERT INTO clocks SELECT auction, UNIX_TIMESTAMP() FROM bids;
INSERT INTO sunk SELECT auction, price FROM bids;
INSERT INTO enveloped SELECT b.auction, r.rate FROM bids b JOIN rates r ON r.currency = CAST(b.price AS STRING);
INSERT INTO sunk VALUES (1, 2);
SELECT * FROM bids;
