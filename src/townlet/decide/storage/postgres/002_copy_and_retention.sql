-- Services that were copied from another storage, with the keys of their earlier starts; and retention.

-- Secrets that sign the ids of decisions, each with the number of the first decision that it signs.
CREATE TABLE decision_key (
    first bigint PRIMARY KEY,
    key text NOT NULL
);
INSERT INTO decision_key (first, key) SELECT 1, key FROM service;
ALTER TABLE service DROP COLUMN key;

-- How many decisions have no row any more, by status.
CREATE TABLE removed_decisions (
    status smallint PRIMARY KEY,
    count bigint NOT NULL
);

-- A territory that was evicted begins again, possibly at a time that it has had before.
DROP INDEX decision_by_time;
CREATE INDEX decision_by_time ON decision (territory, game_time);

-- Events up to this record are covered by its snapshot, and are being removed; 0: none are.
ALTER TABLE service ADD COLUMN base bigint NOT NULL DEFAULT 0;
