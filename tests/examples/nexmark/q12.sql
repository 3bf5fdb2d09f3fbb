-- `bid_processed` are the bids with the times of the batches in which they came.
SELECT bidder, COUNT(*) AS bid_count, TIME_BUCKET(INTERVAL '10 seconds', processed) AS starttime,
       starttime + INTERVAL '10 seconds' AS endtime
FROM bid_processed
GROUP BY bidder, starttime
