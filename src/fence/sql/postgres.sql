-- The fence and the names of commits. Run it once as the owner of the data, inside of a
-- transaction; by several clients at once after pg_advisory_xact_lock. It may be run again. Whoever
-- has USAGE on the schema and EXECUTE on the functions may raise any fence, up to the largest token
-- that a store may grant, and so lock every present holder out: grant it to applications only.

-- names_kept: how long the name of a commit is kept, at least. It can be changed by UPDATE. life:
-- where the fences were made, see fence_life.
CREATE TABLE IF NOT EXISTS leasehold.fence_meta (
  one bool PRIMARY KEY DEFAULT true CHECK (one),
  version int NOT NULL,
  names_kept interval NOT NULL DEFAULT '7 days',
  swept_at timestamptz NOT NULL DEFAULT '-infinity',
  life text);

-- The largest token of each key, and in which life it was raised.
CREATE TABLE IF NOT EXISTS leasehold.fence (
  key text COLLATE "C" PRIMARY KEY,
  token bigint NOT NULL CHECK (token BETWEEN 0 AND 9007199254740991),
  life text) WITH (fillfactor = 50);

-- The largest token of each key of which a name was deleted, and the largest name of those: a name
-- that is absent proves nothing up to both, and is not entered under.
CREATE TABLE IF NOT EXISTS leasehold.swept (
  key text COLLATE "C" PRIMARY KEY,
  token bigint NOT NULL,
  name uuid NOT NULL DEFAULT 'ffffffff-ffff-ffff-ffff-ffffffffffff');

-- Tables of an earlier version. Nothing is changed where the columns are there: it would wait for
-- every transaction.
DO $$
DECLARE t text; c text; type_ text;
BEGIN
  FOR t, c, type_ IN VALUES ('leasehold.fence_meta'::text, 'life'::text, 'text'::text), ('leasehold.fence', 'life', 'text'),
      ('leasehold.swept', 'name', 'uuid NOT NULL DEFAULT ''ffffffff-ffff-ffff-ffff-ffffffffffff''') LOOP
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_attribute a
        WHERE a.attrelid = t::regclass AND a.attname = c::name) THEN
      EXECUTE 'ALTER TABLE '::text || t || ' ADD COLUMN '::text || c || ' '::text || type_;
    END IF;
  END LOOP;
END $$;

-- The server and the database. It is a constant of the session, which is in one database of one
-- server, so a plan may keep it.
CREATE OR REPLACE FUNCTION leasehold.home() RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RETURN (SELECT concat_ws('/', s.system_identifier, d.oid)
    FROM pg_control_system() s, pg_database d WHERE d.datname = current_database());
END $$;

-- What a dump does not carry: the server, the database and the table of the fences. A standby has
-- the same. A dump that was loaded may lack the newest tokens. There a holder enters only under
-- the token to which its own lock was raised since, until somebody who knows that no holder of
-- before is left runs: UPDATE leasehold.fence_meta SET life = leasehold.fence_life()
CREATE OR REPLACE FUNCTION leasehold.fence_life() RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RETURN leasehold.home() || '/' || 'leasehold.fence'::regclass::oid::text;
END $$;

INSERT INTO leasehold.fence_meta (version, life) SELECT 1, leasehold.fence_life()
  WHERE NOT EXISTS (SELECT FROM leasehold.fence_meta) ON CONFLICT DO NOTHING;
UPDATE leasehold.fence_meta SET life = leasehold.fence_life() WHERE life IS NULL;

-- The name of each commit: applied, or void (it was not applied, and never will be).
CREATE TABLE IF NOT EXISTS leasehold.txn (
  txn_id uuid PRIMARY KEY,
  keys text[] NOT NULL,
  tokens bigint[] NOT NULL,
  applied bool NOT NULL,
  at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
  CHECK (pg_catalog.cardinality(keys) = pg_catalog.cardinality(tokens) AND pg_catalog.array_position(keys, NULL) IS NULL
    AND (0 <= ALL (tokens) AND 9007199254740991 >= ALL (tokens)) IS TRUE));

-- What is done once: a name that the user chose, until its time is over.
CREATE TABLE IF NOT EXISTS leasehold.once (
  name text COLLATE "C" PRIMARY KEY,
  until timestamptz NOT NULL);

-- Asynchronous commit would lose what was reported as committed.
CREATE OR REPLACE FUNCTION leasehold.be_durable() RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF current_setting('synchronous_commit') IN ('off', 'local', 'remote_write') THEN
    PERFORM set_config('synchronous_commit', 'on', true);
  END IF;
END $$;

-- Shortens a time-out to the end of the transaction. A shorter one of the session stays. A
-- transaction_timeout that runs is not changed (PostgreSQL 17), only ended and begun.
CREATE OR REPLACE FUNCTION leasehold.limit_to(name text, ms int) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE now_ numeric := extract(epoch FROM current_setting(name)::interval) * 1000;
BEGIN
  IF now_ = 0 OR now_ > ms THEN
    PERFORM set_config(name, '0', true);
    PERFORM set_config(name, ms::text, true);
  END IF;
END $$;

-- Raises the fence of a key to t. Answers what it is then: t, or the larger token that it was
-- raised to before. Waits for the transactions under smaller tokens, at most wait_ms.
CREATE OR REPLACE FUNCTION leasehold.raise(k text, t bigint, wait_ms int, OUT seen bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE of_ text; here constant text := leasehold.fence_life();
BEGIN
  SELECT f.token, f.life INTO seen, of_ FROM leasehold.fence f WHERE f.key = k;
  IF seen > t THEN RETURN; END IF;
  PERFORM set_config('lock_timeout', wait_ms::text, true), leasehold.be_durable();
  IF seen = t AND of_ = here THEN
    -- Perhaps no standby has it. A lock is a write, so the commit of this call waits for them too.
    SELECT f.token INTO seen FROM leasehold.fence f WHERE f.key = k FOR KEY SHARE;
    RETURN;
  END IF;
  INSERT INTO leasehold.fence AS f VALUES (k, t, here)
    ON CONFLICT (key) DO UPDATE SET token = excluded.token, life = excluded.life
      WHERE f.token <= excluded.token
    RETURNING f.token INTO seen;
  IF seen IS NULL THEN SELECT f.token INTO seen FROM leasehold.fence f WHERE f.key = k; END IF;
END $$;

-- Before this version the two answered nothing, and took no time.
DO $$ BEGIN
  IF EXISTS (SELECT FROM pg_catalog.pg_proc p WHERE p.prorettype = 'pg_catalog.void'::pg_catalog.regtype
      AND p.oid = pg_catalog.to_regprocedure('leasehold.enter(text[],bigint[],uuid,int)')) THEN
    DROP FUNCTION leasehold.enter(text[], bigint[], uuid, int);
  END IF;
  DROP FUNCTION IF EXISTS leasehold.seal(uuid);
END $$;

-- The first statement of a fenced transaction. The fence's rows stay locked to its end, so that
-- none is raised before. ms: what is left of the lease, and a second: the server ends a transaction
-- whose client hangs for longer. Answers the server's clock, in microseconds since 1970. It is on
-- the way of every transaction: an assignment costs a tenth of a PERFORM, and one key needs no
-- order.
CREATE OR REPLACE FUNCTION leasehold.enter(ks text[], ts bigint[], x uuid, ms int) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  seen bigint; of_ text; i int; in_order int[] := '{1}'; set_ text := ms; row_ tid;
  home constant text := leasehold.home(); here text;
BEGIN
  IF current_setting('idle_in_transaction_session_timeout') = '0' AND current_setting('statement_timeout') = '0' THEN
    set_ := set_config('idle_in_transaction_session_timeout', set_, true);
    set_ := set_config('statement_timeout', set_, true);
  ELSE
    PERFORM leasehold.limit_to('idle_in_transaction_session_timeout', ms), leasehold.limit_to('statement_timeout', ms);
  END IF;
  set_ := set_config('leasehold.txn', x::text, true);
  IF current_setting('synchronous_commit') <> 'on' THEN PERFORM leasehold.be_durable(); END IF;
  IF current_setting('server_version_num')::int >= 170000 THEN
    PERFORM leasehold.limit_to('transaction_timeout', ms);
  END IF;
  IF cardinality(ks) > 1 THEN
    -- In order of key, so that two transactions over the same keys do not wait for each other.
    in_order := ARRAY(SELECT u.n FROM unnest(ks) WITH ORDINALITY AS u(k, n) ORDER BY u.k COLLATE "C");
  END IF;
  FOREACH i IN ARRAY in_order LOOP
    here := home || '/' || 'leasehold.fence'::regclass::oid::text;
    -- No lock without a match: two that both have to write the row would wait for each other.
    SELECT f.token, f.life INTO seen, of_ FROM leasehold.fence f
      WHERE f.key = ks[i] AND f.token = ts[i] AND f.life = here FOR SHARE;
    IF (seen = ts[i] AND of_ = here) IS NOT TRUE THEN
      INSERT INTO leasehold.fence AS f
        SELECT ks[i], ts[i], here FROM leasehold.fence_meta m WHERE m.life = here
        ON CONFLICT (key) DO UPDATE SET token = excluded.token, life = excluded.life
          WHERE f.token <= excluded.token;
      SELECT f.token, f.life INTO seen, of_ FROM leasehold.fence f WHERE f.key = ks[i] FOR SHARE;
      IF seen > ts[i] THEN
        RAISE EXCEPTION 'the fence of % was raised by a newer holder', ks[i] USING ERRCODE = 'LH001', DETAIL = seen::text;
      ELSIF (seen = ts[i] AND of_ = here) IS NOT TRUE THEN
        RAISE EXCEPTION 'the fence of % is from a dump, without a raise of this holder since', ks[i]
          USING ERRCODE = 'LH009', HINT = 'Acquire the lock again. If no lock is tied to the fence, '
            'stop all holders of before, and run as the owner: '
            'UPDATE leasehold.fence_meta SET life = leasehold.fence_life()';
      END IF;
    END IF;
  END LOOP;
  INSERT INTO leasehold.txn VALUES (x, ks, ts, true) RETURNING ctid INTO row_;
  IF EXISTS (SELECT FROM leasehold.swept s WHERE s.key = ANY (ks) AND (s.token, s.name) >= (ts[array_position(ks, s.key)], x)) THEN
    -- Perhaps it was void, and this is a copy that comes late.
    RAISE EXCEPTION 'the name of the commit is older than those that were deleted' USING ERRCODE = 'LH004',
      HINT = 'Check the clock of the client.';
  END IF;
  set_ := set_config('leasehold.row', row_::text, true);
  RETURN extract(epoch FROM clock_timestamp()) * 1000000;
END $$;

-- Inside of COMMIT, and of PREPARE TRANSACTION, before anything is committed: an error rolls back.
-- LH006: it was not sealed. COMMIT is a statement of the work, or the work sent SET CONSTRAINTS ALL
-- IMMEDIATE. LH005: the lease is over by the server's clock, or that clock was set back behind the
-- begin of the transaction and proves nothing. From PostgreSQL 18 it runs with the rights of enter,
-- which queued it, so it finds nothing by the caller's search_path.
CREATE OR REPLACE FUNCTION leasehold.at_commit() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE until text := pg_catalog.current_setting('leasehold.until', true);
BEGIN
  IF pg_catalog.current_setting('leasehold.sealed', true) IS DISTINCT FROM NEW.txn_id::text THEN
    RAISE EXCEPTION 'the fenced transaction was to be committed before its last statement' USING ERRCODE = 'LH006',
      HINT = 'Leave COMMIT to the fence, and name the constraints in SET CONSTRAINTS.';
  END IF;
  IF until <> '' AND (pg_catalog.clock_timestamp() < pg_catalog.now()
      OR pg_catalog.clock_timestamp() >= pg_catalog.to_timestamp(until::float8 / 1000000)) THEN
    RAISE EXCEPTION 'the lease was over before the commit' USING ERRCODE = 'LH005';
  END IF;
  RETURN NULL;
END $$;

-- Made only where it is missing: it waits for whoever writes the table, and everybody would wait
-- behind it.
DO $$ BEGIN
  IF NOT EXISTS (SELECT FROM pg_catalog.pg_trigger t
      WHERE t.tgrelid = 'leasehold.txn'::pg_catalog.regclass AND t.tgname = 'at_commit') THEN
    CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT ON leasehold.txn DEFERRABLE INITIALLY DEFERRED
      FOR EACH ROW WHEN (NEW.applied) EXECUTE FUNCTION leasehold.at_commit();
  END IF;
  IF NOT EXISTS (SELECT FROM pg_catalog.pg_trigger t
      WHERE t.tgrelid = 'leasehold.txn'::pg_catalog.regclass AND t.tgname = 'at_commit_last') THEN
    CREATE CONSTRAINT TRIGGER at_commit_last AFTER UPDATE OF applied ON leasehold.txn DEFERRABLE INITIALLY DEFERRED
      FOR EACH ROW WHEN (NEW.applied) EXECUTE FUNCTION leasehold.at_commit();
  END IF;
END $$;

-- The last statement of a fenced transaction: it fails if the transaction was aborted (COMMIT does
-- not), and if it is not the one that entered. until: the end of the lease by the server's clock,
-- in microseconds since 1970; null: COMMIT does not compare it. The update changes nothing: it
-- queues the check once more, behind the deferred constraints of the work. It finds the row by its
-- place, because a search of the index would make serializable transactions fail together.
CREATE OR REPLACE FUNCTION leasehold.seal(x uuid, until bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE set_ text; moved tid; row_ tid := nullif(current_setting('leasehold.row', true), '')::tid;
BEGIN
  IF current_setting('leasehold.txn', true) IS DISTINCT FROM x::text THEN
    RAISE EXCEPTION 'the transaction that entered the fence was ended before its last statement' USING ERRCODE = 'LH003';
  END IF;
  set_ := set_config('leasehold.sealed', x::text, true);
  set_ := set_config('leasehold.until', coalesce(until::text, ''), true);
  UPDATE leasehold.txn SET applied = true WHERE ctid = row_ AND txn_id = x AND applied RETURNING ctid INTO moved;
  -- A transaction that entered before this version has no place.
  IF moved IS NULL AND row_ IS NOT NULL THEN
    RAISE EXCEPTION 'the name of the commit was changed by somebody else' USING ERRCODE = 'LH003';
  END IF;
  set_ := set_config('leasehold.row', moved::text, true);
END $$;

-- True: committed. False: it was not, and never will be: its name is taken. Waits while the
-- transaction is open, at most wait_ms.
CREATE OR REPLACE FUNCTION leasehold.resolve(ks text[], ts bigint[], x uuid, wait_ms int) RETURNS bool
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE a bool; was_new int;
BEGIN
  PERFORM set_config('lock_timeout', wait_ms::text, true), leasehold.be_durable();
  INSERT INTO leasehold.txn VALUES (x, ks, ts, false) ON CONFLICT (txn_id) DO NOTHING;
  GET DIAGNOSTICS was_new = ROW_COUNT;
  IF was_new = 1 AND EXISTS (
      SELECT FROM unnest(ks, ts) AS u(k, t) JOIN leasehold.swept s ON s.key = u.k WHERE (s.token, s.name) >= (u.t, x)) THEN
    RAISE EXCEPTION 'the names of this holder were deleted' USING ERRCODE = 'LH004';
  END IF;
  -- Perhaps no standby has it. A lock is a write, so the commit of this call waits for them too.
  SELECT v.applied INTO a FROM leasehold.txn v WHERE v.txn_id = x FOR KEY SHARE;
  IF NOT FOUND THEN
    -- It was there a moment ago.
    RAISE EXCEPTION 'the names of this holder were deleted' USING ERRCODE = 'LH004';
  END IF;
  RETURN a;
END $$;

-- In the transaction of what is done once: false if a transaction with this name was committed, and
-- its time is not over. Waits for one that is open.
CREATE OR REPLACE FUNCTION leasehold.once(n text, keep_ms bigint) RETURNS bool
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE is_new bool;
BEGIN
  INSERT INTO leasehold.once AS o VALUES (n, clock_timestamp() + keep_ms * interval '1 millisecond')
    ON CONFLICT (name) DO UPDATE SET until = excluded.until WHERE o.until <= clock_timestamp()
    RETURNING true INTO is_new;
  RETURN is_new IS TRUE;
END $$;

-- Deletes the names that are older than names_kept, at most hourly; of the newest holder only those
-- that say so themselves, so that a name of now is larger. Answers how many. After 10,000 at once
-- the next call goes on.
CREATE OR REPLACE FUNCTION leasehold.sweep() RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE kept interval; n bigint; most_ constant int := 10000; old_ timestamptz; first_ uuid;
BEGIN
  SELECT m.names_kept INTO kept FROM leasehold.fence_meta m WHERE m.swept_at < clock_timestamp() - interval '1 hour'
    FOR UPDATE SKIP LOCKED;
  IF kept IS NULL THEN RETURN 0; END IF;
  DELETE FROM leasehold.once o USING (
    SELECT d.name FROM leasehold.once d WHERE d.until <= clock_timestamp() FOR UPDATE SKIP LOCKED) AS done
    WHERE o.name = done.name;
  old_ := clock_timestamp() - kept;
  -- The first name that is made at this time.
  first_ := rpad(lpad(to_hex(greatest(0, floor(extract(epoch FROM old_) * 1000))::bigint), 12, '0'), 32, '0')::uuid;
  WITH old AS (
    SELECT v.txn_id FROM leasehold.txn v WHERE v.at < old_ AND (v.txn_id < first_ OR NOT EXISTS (
      SELECT FROM unnest(v.keys, v.tokens) AS u(k, t)
        LEFT JOIN leasehold.fence f ON f.key = u.k WHERE f.token IS NULL OR f.token <= u.t))
    LIMIT most_ FOR UPDATE SKIP LOCKED),
  gone AS (DELETE FROM leasehold.txn v USING old WHERE v.txn_id = old.txn_id RETURNING v.txn_id, v.keys, v.tokens),
  most AS (SELECT DISTINCT ON (u.k) u.k, u.t, gone.txn_id FROM gone, unnest(gone.keys, gone.tokens) AS u(k, t)
    ORDER BY u.k, u.t DESC, gone.txn_id DESC),
  noted AS (INSERT INTO leasehold.swept AS s SELECT k, t, txn_id FROM most ORDER BY k
    ON CONFLICT (key) DO UPDATE SET token = excluded.token, name = excluded.name
      WHERE (s.token, s.name) < (excluded.token, excluded.name))
  SELECT count(*) INTO n FROM gone;
  UPDATE leasehold.fence_meta SET swept_at = CASE WHEN n < most_ THEN clock_timestamp() ELSE swept_at END;
  RETURN n;
END $$;
