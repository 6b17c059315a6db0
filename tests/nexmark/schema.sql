-- The three streams of Nexmark as tables. A bid has no key, as in the benchmark: a result row of bids may be there twice.
CREATE TABLE person (
    id bigint PRIMARY KEY,
    name text NOT NULL,
    city text,
    state text,
    date_time timestamp NOT NULL
);
CREATE TABLE auction (
    id bigint PRIMARY KEY,
    item_name text NOT NULL,
    initial_bid bigint,
    reserve bigint,
    date_time timestamp NOT NULL,
    expires timestamp NOT NULL,
    seller bigint NOT NULL REFERENCES person,
    category int NOT NULL
);
CREATE TABLE bid (
    auction bigint NOT NULL,
    bidder bigint NOT NULL,
    price bigint NOT NULL,
    channel text,
    date_time timestamp NOT NULL
);
CREATE INDEX ON auction (seller);
CREATE INDEX ON bid (auction);
CREATE INDEX ON bid (price);
CREATE INDEX ON bid (date_bin('10 seconds', date_time, '2024-01-01'));
