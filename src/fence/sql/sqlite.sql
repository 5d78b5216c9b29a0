-- The fence and the names of commits, in the file of the data. It may be run again.
CREATE TABLE IF NOT EXISTS leasehold_fence (key TEXT PRIMARY KEY, token INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS leasehold_txn (
  txn_id TEXT PRIMARY KEY,
  applied INTEGER NOT NULL,
  at INTEGER NOT NULL DEFAULT (CAST(strftime('%s', 'now') AS INTEGER))) WITHOUT ROWID;
-- The newest name that was deleted: a name that is absent proves nothing up to this one. Names
-- begin with the time.
CREATE TABLE IF NOT EXISTS leasehold_swept (one INTEGER PRIMARY KEY CHECK (one = 1), txn_id TEXT NOT NULL);
-- What is done once: a name that the user chose, until its time is over, in seconds.
CREATE TABLE IF NOT EXISTS leasehold_once (name TEXT PRIMARY KEY, until INTEGER NOT NULL) WITHOUT ROWID;
