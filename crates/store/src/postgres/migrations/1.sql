-- Documents, local documents, and what is kept of jobs.
CREATE SCHEMA IF NOT EXISTS settee;

-- One row. Every writer of documents locks it: so sequence numbers become visible in their order.
CREATE TABLE settee.meta (
    is_only boolean PRIMARY KEY DEFAULT true CHECK (is_only),
    server_uuid text NOT NULL,
    -- The number of the last of these files.
    format integer NOT NULL,
    -- The number of the last update.
    seq bigint NOT NULL DEFAULT 0,
    -- The greatest number of a deleted document that was removed for good.
    purged_seq bigint NOT NULL DEFAULT 0
);

-- Ids stand in the order of their bytes. A body is text, so that the order of members and the digits of
-- numbers stay.
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

-- What was set by hand, as JSON text.
CREATE TABLE settee.jobs (
    doc_id text COLLATE "C" PRIMARY KEY,
    kept text
);
