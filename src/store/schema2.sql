-- Schema 2: what operators say about agents and tools.

CREATE TABLE policy (
    namespace TEXT NOT NULL,
    agent_id  TEXT NOT NULL,
    rules     TEXT NOT NULL, -- JSON
    PRIMARY KEY (namespace, agent_id)
) STRICT;

-- Tools that an operator switched off. Not a part of the tool's row: it outlives the tool.
CREATE TABLE switch (
    namespace TEXT NOT NULL,
    name      TEXT NOT NULL,
    message   TEXT NOT NULL,
    since_ms  INTEGER NOT NULL,
    PRIMARY KEY (namespace, name)
) STRICT, WITHOUT ROWID;
