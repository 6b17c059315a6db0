-- :scale times 200 persons, 1,000 auctions and 10,000 bids, a bid every 20 ms.
INSERT INTO person
SELECT i, 'person ' || i % 97, (ARRAY['Phoenix', 'Boise', 'Portland', 'Bend', NULL])[i % 5 + 1],
    (ARRAY['AZ', 'CA', 'ID', 'OR', 'WA', 'WY'])[i % 6 + 1], timestamp '2024-01-01' + i * interval '1 second'
FROM generate_series(1, 200 * :scale) i;
INSERT INTO auction
SELECT i, 'item ' || i % 31, i % 100, CASE WHEN i % 3 > 0 THEN i % 500 END,
    timestamp '2024-01-01' + i * interval '200 milliseconds',
    timestamp '2024-01-01' + i * interval '200 milliseconds' + (i % 17 + 1) * interval '1 second',
    i * 7919 % (200 * :scale) + 1, i % 5 + 10
FROM generate_series(1, 1000 * :scale) i;
INSERT INTO bid
SELECT greatest(1, i / 10 + 1 - i * 31 % 40), i * 104729 % (200 * :scale) + 1, i * 48271 % 9973 + 1,
    (ARRAY['apple', 'google', 'baidu', NULL])[i % 4 + 1], timestamp '2024-01-01' + i * interval '20 milliseconds'
FROM generate_series(1::bigint, 10000 * :scale) i;
