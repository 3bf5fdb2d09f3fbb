-- Nobody comes twice, and so a semi join says it, too. Such rows never change, and come at once.
SELECT id, name, start
FROM (SELECT *, TIME_BUCKET(INTERVAL '10 seconds', dateTime) AS start FROM person) AS p
WHERE EXISTS (
  SELECT 1 FROM auction AS a WHERE a.seller = p.id AND TIME_BUCKET(INTERVAL '10 seconds', a.dateTime) = p.start
)
