CREATE TABLE ticker (
  symbol STRING NOT NULL, price INT, tax INT, rowtime TIMESTAMP(3),
  WATERMARK FOR rowtime AS rowtime - INTERVAL '1' SECOND
) WITH ('connector' = 'kafka', 'topic' = 'ticker', 'properties.bootstrap.servers' = 'kafka:9092', 'format' = 'json', 'scan.startup.mode' = 'earliest-offset');
CREATE TABLE dips (symbol STRING, start_at TIMESTAMP(3), bottom_at TIMESTAMP(3), end_at TIMESTAMP(3), a DOUBLE) WITH ('connector' = 'kafka', 'topic' = 'dips', 'properties.bootstrap.servers' = 'kafka:9092', 'format' = 'json');
INSERT INTO dips
SELECT *
FROM ticker
    MATCH_RECOGNIZE (
        PARTITION BY symbol
        ORDER BY rowtime
        MEASURES
            START_ROW.rowtime AS start_tstamp,
            LAST(PRICE_DOWN.rowtime) AS bottom_tstamp,
            LAST(PRICE_UP.rowtime) AS end_tstamp,
            AVG(PRICE_DOWN.price) AS a
        ONE ROW PER MATCH
        AFTER MATCH SKIP TO LAST PRICE_UP
        PATTERN (START_ROW PRICE_DOWN+ PRICE_UP{1,3}?) WITHIN INTERVAL '1' HOUR
        DEFINE
            PRICE_DOWN AS
                (LAST(PRICE_DOWN.price, 1) IS NULL AND PRICE_DOWN.price < START_ROW.price) OR
                    PRICE_DOWN.price < LAST(PRICE_DOWN.price, 1),
            PRICE_UP AS
                PRICE_UP.price > LAST(PRICE_DOWN.price, 1)
    ) MR;
