-- Documents, local documents, jobs, and what the daemons of a fleet share.
CREATE SCHEMA IF NOT EXISTS settee;

-- One row. Every writer of documents locks it, so sequence numbers become visible in order.
CREATE TABLE settee.meta (
    is_only boolean PRIMARY KEY DEFAULT true CHECK (is_only),
    server_uuid text NOT NULL,
    -- FORMAT of schema.rs.
    format integer NOT NULL,
    -- The number of the last update.
    seq bigint NOT NULL DEFAULT 0,
    -- The greatest sequence number of a deleted document that was purged.
    purged_seq bigint NOT NULL DEFAULT 0
);

-- Ids are ordered by their bytes. A body is text, which keeps the order of members and the digits of
-- numbers.
CREATE TABLE settee.docs (
    id text COLLATE "C" PRIMARY KEY,
    rev_number bigint NOT NULL,
    rev_hash text NOT NULL,
    deleted boolean NOT NULL,
    -- In seconds since 1970.
    deleted_at bigint CHECK (deleted = (deleted_at IS NOT NULL)),
    seq bigint NOT NULL UNIQUE,
    body text NOT NULL
);

CREATE INDEX docs_deleted ON settee.docs (seq) WHERE deleted;

CREATE TABLE settee.locals (
    id text COLLATE "C" PRIMARY KEY,
    number bigint NOT NULL,
    body text NOT NULL
);

CREATE TABLE settee.jobs (
    doc_id text COLLATE "C" PRIMARY KEY,
    -- Values set by users, as JSON text.
    kept text,
    -- Whether the document requests a replication. Updated by every write of the document.
    wanted boolean NOT NULL DEFAULT false,
    -- The epoch that has claimed the document, and the number of its claim.
    owner bigint,
    claim bigint,
    -- The replication id: at most one document has it.
    rep_id text COLLATE "C" UNIQUE,
    -- The job's past, saved for its next owner, as JSON text.
    past text,
    CHECK ((owner IS NULL) = (claim IS NULL))
);

CREATE INDEX jobs_owner ON settee.jobs (owner);

-- The daemons, by their epochs.
CREATE TABLE settee.instances (
    epoch bigint PRIMARY KEY,
    address text NOT NULL,
    version text NOT NULL,
    lease_until timestamptz NOT NULL,
    is_leaving boolean NOT NULL DEFAULT false,
    -- Whether it counts as alive.
    has_claimed boolean NOT NULL DEFAULT false
);

-- The number of the last status of each epoch: not in `instances`, so that no renewal waits for a status.
CREATE TABLE settee.status_numbers (
    epoch bigint PRIMARY KEY,
    number bigint NOT NULL DEFAULT 0
);

-- The statuses of jobs, as JSON text.
CREATE TABLE settee.job_status (
    -- The id of the document, or of the replication of a transient job.
    key text COLLATE "C" NOT NULL,
    -- The epoch of the daemon that has a transient job; 0 for a document's job.
    transient bigint NOT NULL,
    epoch bigint NOT NULL,
    number bigint NOT NULL,
    -- NULL once a transient job has ended.
    body text,
    at timestamptz NOT NULL,
    PRIMARY KEY (key, transient)
);

CREATE INDEX job_status_number ON settee.job_status (epoch, number);

-- Orders to the owners of jobs, as JSON text.
CREATE TABLE settee.orders (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    epoch bigint NOT NULL,
    key text NOT NULL,
    is_transient boolean NOT NULL,
    body text NOT NULL,
    at timestamptz NOT NULL
);

CREATE INDEX orders_epoch ON settee.orders (epoch);

-- Settings made at run time.
CREATE TABLE settee.overrides (
    section text COLLATE "C",
    key text COLLATE "C",
    -- NULL if the setting was deleted.
    value text,
    PRIMARY KEY (section, key)
);

CREATE TABLE settee.secrets (
    name text PRIMARY KEY,
    value text NOT NULL
);

-- Returns whether a lease is valid now, as opposed to when the statement began. Waits for a renewal in progress; a
-- later one waits for this statement.
CREATE FUNCTION settee.has_lease(asked bigint) RETURNS boolean LANGUAGE sql VOLATILE AS
    'SELECT lease_until > clock_timestamp() FROM (SELECT lease_until FROM settee.instances WHERE epoch = asked FOR SHARE) l';
