-- Windows of time as Flink's pages write them.
SET 'table.exec.source.idle-timeout' = '10 s';
CREATE TABLE bids (
  item BIGINT,
  bidder STRING,
  price DECIMAL(10, 2),
  bidtime TIMESTAMP(3),
  proctime AS PROCTIME(),
  WATERMARK FOR bidtime AS bidtime - INTERVAL '5' SECOND
) WITH ('connector' = 'kafka', 'topic' = 'bids', 'properties.bootstrap.servers' = 'kafka:9092', 'format' = 'json');
CREATE TABLE asks (
  item BIGINT,
  price DECIMAL(10, 2),
  epoch BIGINT,
  asked AS TO_TIMESTAMP_LTZ(epoch, 3),
  WATERMARK FOR asked AS asked - INTERVAL '1' MINUTE
) WITH ('connector' = 'kafka', 'format' = 'json', 'scan.watermark.idle-timeout' = '1min');
CREATE TABLE ordered (item BIGINT, at TIMESTAMP(3), WATERMARK FOR at AS at)
  WITH ('connector' = 'kafka', 'format' = 'json');

CREATE TABLE totals (window_start TIMESTAMP(3), window_end TIMESTAMP(3), item BIGINT, total DECIMAL(38, 2))
  WITH ('connector' = 'kafka', 'format' = 'json');
CREATE TABLE tops (window_end TIMESTAMP(3), place BIGINT, item BIGINT, total DECIMAL(38, 2),
  PRIMARY KEY (window_end, place) NOT ENFORCED)
  WITH ('connector' = 'upsert-kafka', 'key.format' = 'json', 'value.format' = 'json');
CREATE TABLE pairs (item BIGINT, price DECIMAL(10, 2), asked DECIMAL(10, 2), window_end TIMESTAMP_LTZ(3))
  WITH ('connector' = 'kafka', 'format' = 'json');
CREATE TABLE sessions (bidder STRING, begins TIMESTAMP(3), ends TIMESTAMP(3), n BIGINT)
  WITH ('connector' = 'kafka', 'format' = 'json');
CREATE TABLE last_hour (item BIGINT, n BIGINT, PRIMARY KEY (item) NOT ENFORCED)
  WITH ('connector' = 'upsert-kafka', 'key.format' = 'json', 'value.format' = 'json');
CREATE TABLE arrivals (item BIGINT, n BIGINT) WITH ('connector' = 'kafka', 'format' = 'json');

INSERT INTO totals
SELECT window_start, window_end, item, SUM(price)
FROM TABLE(
  TUMBLE(DATA => TABLE bids, TIMECOL => DESCRIPTOR(bidtime), SIZE => INTERVAL '10' MINUTES, `OFFSET` => INTERVAL '1' MINUTES))
GROUP BY window_start, window_end, item;

INSERT INTO tops
SELECT window_end, place, item, total FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY total DESC) AS place
  FROM (
    SELECT window_start, window_end, item, SUM(price) AS total
    FROM TABLE(HOP(TABLE bids, DESCRIPTOR(bidtime), INTERVAL '5' MINUTES, INTERVAL '10' MINUTES))
    GROUP BY window_start, window_end, item
  )
) WHERE place <= 3;

INSERT INTO pairs
SELECT b.item, b.price, a.price, a.window_end
FROM (
  SELECT * FROM TABLE(TUMBLE(TABLE default_catalog.default_database.asks, DESCRIPTOR(asked), INTERVAL '1' HOUR))
) a LEFT JOIN (
  SELECT item, price, CAST(window_start AS TIMESTAMP_LTZ(3)) AS s, CAST(window_end AS TIMESTAMP_LTZ(3)) AS e
  FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(bidtime), INTERVAL '1' HOUR))
) b ON a.item = b.item AND a.window_start = b.s AND a.window_end = b.e;

INSERT INTO sessions
SELECT bidder, SESSION_START(bidtime, INTERVAL '30' MINUTE), SESSION_END(bidtime, INTERVAL '30' MINUTE), COUNT(*)
FROM bids GROUP BY bidder, SESSION(bidtime, INTERVAL '30' MINUTE);

INSERT INTO last_hour
SELECT item, MAX(n) FROM (
  SELECT item, window_end, COUNT(*) AS n FROM TABLE(CUMULATE(TABLE ordered, DESCRIPTOR(at), INTERVAL '10' MINUTES, INTERVAL '1' HOUR))
  GROUP BY item, window_start, window_end
) GROUP BY item;

INSERT INTO arrivals
SELECT item, COUNT(*) FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(proctime), INTERVAL '10' MINUTES))
GROUP BY item, window_start, window_end;
