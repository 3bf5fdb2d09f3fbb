-- A bid at the end of a window is held against that window as well as against the next one, as BETWEEN has it.
WITH highest AS (
  SELECT TIME_BUCKET(INTERVAL '10 seconds', dateTime) AS start, MAX(price) AS price FROM bid GROUP BY start
)
SELECT b.auction, b.price, b.bidder, b.dateTime, b.extra
FROM bid AS b
JOIN highest AS h ON b.price = h.price AND b.dateTime >= h.start AND b.dateTime <= h.start + INTERVAL '10 seconds'
