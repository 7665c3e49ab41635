-- Services that were moved to another server by a dump, and the settings of processes.

-- Added to the numbers of transactions: a server that has numbered fewer than the one before it continues its numbers.
ALTER TABLE service ADD COLUMN transaction_offset bigint NOT NULL DEFAULT 0;

ALTER TABLE process ADD COLUMN settings text NOT NULL DEFAULT '';  -- with which it was started, as JSON

-- Each database session signs ids with a key of its own, which is in the events; a decision has its id in the reply.
DROP TABLE decision_key;
