-- Schema 1. STRICT: a value of the wrong type is an error, not a surprise.

-- One row: counters that never go back.
CREATE TABLE counter (
    one        INTEGER PRIMARY KEY CHECK (one = 1),
    generation INTEGER NOT NULL, -- highest ever used
    revision   INTEGER NOT NULL  -- highest ever reserved
) STRICT;
INSERT INTO counter VALUES (1, 0, 0);

CREATE TABLE tool (
    namespace      TEXT NOT NULL,
    name           TEXT NOT NULL,
    spec           TEXT NOT NULL, -- JSON; what the owner sent as JSON is text inside it, byte for byte
    spec_hash      TEXT NOT NULL,
    owner          TEXT NOT NULL,
    generation     INTEGER NOT NULL,
    from_manifest  INTEGER NOT NULL,
    create_time_ms INTEGER NOT NULL,
    update_time_ms INTEGER NOT NULL,
    PRIMARY KEY (namespace, name)
) STRICT;

-- Last successes, so that a restart inside the grace hides nothing.
CREATE TABLE success (
    namespace  TEXT NOT NULL,
    name       TEXT NOT NULL,
    probe      TEXT NOT NULL,
    generation INTEGER NOT NULL,
    boot_id    TEXT NOT NULL,    -- the boot that boot_ns belongs to
    boot_ns    INTEGER NOT NULL, -- CLOCK_BOOTTIME
    wall_ms    INTEGER NOT NULL,
    ttl_ns     INTEGER,
    PRIMARY KEY (namespace, name, probe)
) STRICT, WITHOUT ROWID;

CREATE TABLE gateway (
    namespace  TEXT NOT NULL,
    gateway_id TEXT NOT NULL,
    snapshot   TEXT NOT NULL,
    PRIMARY KEY (namespace, gateway_id)
) STRICT;
