-- Tables of one decision service. Times in seconds (`at`) are those of the processes, since 1970.

CREATE TABLE service (
    singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    id text NOT NULL,           -- identifies the log, as the id in the embedded log does
    key text NOT NULL,          -- secret that signs the ids of decisions
    settings text NOT NULL      -- the last settings with which a process started, as JSON
);

CREATE SEQUENCE decision_number;

-- All events. Those of the learner follow the event (after_transaction, after_id), the last one it had applied; all
-- others are ordered by (transaction, id). A transaction writes nothing before it holds all its locks, so transactions
-- that depend on each other have increasing numbers.
CREATE TABLE event (
    transaction bigint NOT NULL DEFAULT (pg_current_xact_id()::text::bigint),
    id bigint GENERATED ALWAYS AS IDENTITY,
    after_transaction bigint,
    after_id bigint,
    at timestamptz NOT NULL DEFAULT now(),
    body text NOT NULL,
    PRIMARY KEY (transaction, id)
);
CREATE INDEX event_of_learner ON event (id) WHERE after_id IS NOT NULL;

CREATE TABLE territory (
    name text PRIMARY KEY,
    state bytea NOT NULL,       -- columns that the domain carries from one observation to the next
    game_time double precision NOT NULL,
    at double precision NOT NULL,
    client text NOT NULL
);

CREATE TABLE decision (
    number bigint PRIMARY KEY,
    territory text NOT NULL,
    game_time double precision NOT NULL,
    at double precision NOT NULL,
    client text NOT NULL,
    action integer NOT NULL,
    status smallint NOT NULL,   -- 0 pending, 1 a decision to wait, 2 joined, 3 failed, 4 expired
    digest integer NOT NULL DEFAULT 0,  -- of the report that was accepted
    reply text NOT NULL,
    inactive boolean NOT NULL DEFAULT false,  -- deferred, and not activated
    observation bytea           -- what was decided on, while the decision is pending
);
CREATE UNIQUE INDEX decision_by_time ON decision (territory, game_time);
CREATE INDEX decision_pending ON decision (territory) WHERE status = 0;
CREATE INDEX decision_pending_at ON decision (at) WHERE status = 0;

CREATE TABLE version (
    number integer PRIMARY KEY,
    info text NOT NULL,
    state bytea NOT NULL
);

CREATE TABLE serving_change (
    number integer PRIMARY KEY,
    body text NOT NULL
);

CREATE TABLE snapshot (
    record bigint PRIMARY KEY,
    transaction bigint NOT NULL,
    id bigint NOT NULL,
    same integer NOT NULL,      -- how many of the events with this position are in the snapshot
    info text NOT NULL,
    state bytea NOT NULL
);

-- One row. The epoch is increased by every new leader; each write of a leader requires that the epoch is still its own.
CREATE TABLE leader (
    singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    epoch bigint NOT NULL DEFAULT 0,
    process text,
    backend integer,            -- its connection, to be terminated if it stops renewing
    renewed timestamptz
);
INSERT INTO leader DEFAULT VALUES;

CREATE TABLE process (
    id text PRIMARY KEY,
    role text NOT NULL,
    host text NOT NULL,
    started timestamptz NOT NULL DEFAULT now(),
    seen timestamptz NOT NULL DEFAULT now(),
    status text NOT NULL        -- what the process reports about itself, as JSON
);
