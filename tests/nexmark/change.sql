-- One cycle: the streams go on, the oldest bids are forgotten, and what was wrong is put right.
INSERT INTO person
SELECT 100000 + :cycle * 100 + i, 'person ' || i, 'Boise', (ARRAY['ID', 'WA'])[i % 2 + 1],
    timestamp '2024-01-01 00:03:20' + :cycle * interval '10 seconds' + i * interval '1 second'
FROM generate_series(1, 10) i;
INSERT INTO auction
SELECT 200000 + :cycle * 100 + i, 'new item', i, i, timestamp '2024-01-01 00:03:20' + :cycle * interval '10 seconds' + i * interval '200 milliseconds',
    timestamp '2024-01-01 00:03:30' + :cycle * interval '10 seconds', 100000 + :cycle * 100 + i % 10 + 1, i % 5 + 10
FROM generate_series(1, 20) i;
INSERT INTO bid
SELECT CASE WHEN i % 2 = 0 THEN 200000 + :cycle * 100 + i % 20 + 1 ELSE 950 + i % 50 END, i % 100 + 1,
    i * 48271 % 9999 + 1, 'google', timestamp '2024-01-01 00:03:20' + :cycle * interval '10 seconds' + i * interval '50 milliseconds'
FROM generate_series(1, 100) i;
-- The same bid twice, and one of two that are alike taken back.
INSERT INTO bid SELECT * FROM bid WHERE auction = 50 + :cycle;
DELETE FROM bid WHERE ctid IN (SELECT min(ctid) FROM bid WHERE auction = 50 + :cycle GROUP BY bidder, price);
DELETE FROM bid WHERE date_time < timestamp '2024-01-01 00:00:02' + :cycle * interval '2 seconds';
UPDATE bid SET price = price + 500 WHERE auction % 199 = :cycle;
UPDATE auction SET expires = expires + interval '5 seconds', category = 10 WHERE id % 97 = :cycle;
UPDATE person SET state = CASE state WHEN 'OR' THEN 'WA' ELSE 'OR' END, name = name || '*' WHERE id % 37 = :cycle;
DELETE FROM auction WHERE id % 211 = :cycle;
