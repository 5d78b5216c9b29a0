-- The fence and the names of commits, in the database of the data. It may be run again. Everything
-- is compared byte by byte: the default collations hold `A` and `a` for one key.
-- raises: makes each raise a write. The COMMIT of a transaction that wrote nothing does not wait
-- for the log, and would confirm what a crash can still undo.
CREATE TABLE IF NOT EXISTS leasehold_fence (
  lock_key VARCHAR(200) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
  token BIGINT NOT NULL,
  raises BIGINT NOT NULL DEFAULT 1) ENGINE = InnoDB;
-- The name of each commit, one row for each key that it is under. The resolver claims the row of
-- the first key, in order of bytes.
-- state: 0 void: not applied, and never will be. 1 applied. 2 entered: only a reader of uncommitted
--   rows sees it, unless a statement of the work committed (DDL, BEGIN, COMMIT): then a part is
--   applied, and the row says so. 7, 8 and 9 cannot be stored: they turn a refusal into an error, so
--   that what was sent behind it in the same request is not executed.
-- until: a time after the end of the lease, by this server's clock, in microseconds since 1970.
-- conn: the connection, so that a newer holder can end it.
-- asked: makes the resolver's read a write, as `raises` does.
CREATE TABLE IF NOT EXISTS leasehold_txn (
  txn_id CHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  lock_key VARCHAR(200) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  token BIGINT NOT NULL,
  state TINYINT NOT NULL,
  until BIGINT NOT NULL,
  conn BIGINT UNSIGNED NOT NULL,
  asked INT NOT NULL DEFAULT 0,
  at DATETIME(6) NOT NULL,
  PRIMARY KEY (txn_id, lock_key),
  KEY leasehold_of_key (lock_key, token),
  CONSTRAINT leasehold_name_is_too_old CHECK (state <> 7),
  CONSTRAINT leasehold_newer_holder CHECK (state <> 8),
  CONSTRAINT leasehold_lease_is_over CHECK (state <> 9)) ENGINE = InnoDB;
-- The largest name of each key that was deleted: a name that is absent proves nothing up to this
-- one, and nothing is committed under it.
CREATE TABLE IF NOT EXISTS leasehold_swept (
  lock_key VARCHAR(200) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
  name CHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL) ENGINE = InnoDB;
-- What is done once: a name that the user chose, until its time is over, in seconds since 1970.
CREATE TABLE IF NOT EXISTS leasehold_once (
  name VARBINARY(1000) NOT NULL PRIMARY KEY,
  until BIGINT NOT NULL,
  KEY leasehold_until (until)) ENGINE = InnoDB;
-- One row: how long names are kept, and when a client swept last.
CREATE TABLE IF NOT EXISTS leasehold_meta (
  one TINYINT NOT NULL PRIMARY KEY,
  names_kept_s INT NOT NULL,
  swept_at DATETIME NOT NULL) ENGINE = InnoDB;
INSERT IGNORE INTO leasehold_meta VALUES (1, 604800, '1970-01-02');
