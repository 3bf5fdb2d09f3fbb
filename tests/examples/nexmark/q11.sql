-- A session begins where nothing was for more than ten seconds; the number of beginnings so far is that of the session.
WITH begun AS (
  SELECT *, COALESCE(dateTime - LAG(dateTime) OVER before > INTERVAL '10 seconds', TRUE) AS begins
  FROM bid
  WINDOW before AS (PARTITION BY bidder ORDER BY dateTime)
),
numbered AS (
  SELECT *, SUM(begins::INT) OVER (PARTITION BY bidder ORDER BY dateTime) AS number FROM begun
)
SELECT bidder, COUNT(*) AS bid_count, MIN(dateTime) AS starttime, MAX(dateTime) + INTERVAL '10 seconds' AS endtime,
       endtime + INTERVAL '1 millisecond' AS closes  -- a bid just ten seconds later is still of the session
FROM numbered
GROUP BY bidder, number
