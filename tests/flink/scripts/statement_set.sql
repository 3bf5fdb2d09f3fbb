/* Clicks of users, deduplicated and counted: one statement set with two inserts. */
CREATE TABLE clicks (
  click_id STRING NOT NULL,
  user_id BIGINT,
  url STRING,
  at_ms BIGINT,
  at AS TO_TIMESTAMP_LTZ(at_ms, 3),
  arrived AS PROCTIME()
) WITH ('connector' = 'kafka', 'topic' = 'clicks', 'properties.bootstrap.servers' = 'localhost:9092', 'format' = 'json');

CREATE TABLE distinct_clicks (
  click_id STRING NOT NULL,
  host STRING,
  at TIMESTAMP_LTZ(3),
  PRIMARY KEY (click_id) NOT ENFORCED
) WITH ('connector' = 'upsert-kafka', 'topic' = 'distinct-clicks',
  'properties.bootstrap.servers' = 'localhost:9092', 'key.format' = 'json', 'value.format' = 'json');

CREATE TABLE clicks_per_user (
  user_id BIGINT,
  clicks BIGINT,
  pages_per_click INT,
  PRIMARY KEY (user_id) NOT ENFORCED
) WITH ('connector' = 'upsert-kafka', 'topic' = 'clicks-per-user',
  'properties.bootstrap.servers' = 'localhost:9092', 'key.format' = 'json', 'value.format' = 'json');

CREATE TABLE clicks_per_anybody WITH ('topic' = 'clicks-per-anybody') LIKE clicks_per_user (EXCLUDING CONSTRAINTS);

EXECUTE STATEMENT SET
BEGIN
  INSERT INTO distinct_clicks
  SELECT click_id, REGEXP_EXTRACT(url, '^https?://([^/]+)', 1), at FROM (
    SELECT *, ROW_NUMBER() OVER (PARTITION BY click_id ORDER BY arrived) AS n FROM clicks
  ) WHERE n = 1;

  INSERT INTO clicks_per_user
  SELECT user_id, COUNT(*), COUNT(DISTINCT url) / COUNT(*) FROM clicks WHERE user_id IS NOT NULL GROUP BY user_id;
END;
