-- The windows of a bid are written out: five of them, each two seconds after the one before.
WITH counted AS (
  SELECT auction, start, COUNT(*) AS num
  FROM (
    SELECT auction, UNNEST([TIME_BUCKET(INTERVAL '2 seconds', dateTime) - back * INTERVAL '2 seconds' FOR back IN RANGE(5)]) AS start
    FROM bid
  )
  GROUP BY auction, start
)
SELECT auction, num, start + INTERVAL '10 seconds' AS closes
FROM counted
QUALIFY num = MAX(num) OVER (PARTITION BY start)
