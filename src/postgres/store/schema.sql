-- The locks. Run it as the owner, in the database of the locks, inside of a transaction. It may be
-- run again. Whoever has USAGE on the schema may ask for every key, see who holds it, and take it
-- away (take_away, an operator's call); to renew or to release a hold one must know its owner. The
-- tables are for their owner only.

-- One row. max_ttl is one value for all clients. system: whose life these tables have (see life),
-- and timeline: of which server. Another one (a promoted standby, a recovery to a point in time, a
-- dump that was loaded, tables that were created again) may lack the last grants, and grants
-- nothing until closed_until.
CREATE TABLE IF NOT EXISTS leasehold.lock_meta (
  one bool PRIMARY KEY DEFAULT true CHECK (one),
  version int NOT NULL,
  max_ttl interval NOT NULL DEFAULT '30 s',
  system text NOT NULL DEFAULT '',
  timeline text NOT NULL DEFAULT '',
  closed_until timestamptz NOT NULL DEFAULT '-infinity',
  swept_at timestamptz NOT NULL DEFAULT '-infinity');

-- The last token of the keys of each slot: the largest of its rows. A grant writes one that no
-- other grant is writing, so a slot has as many rows as it once had grants at one time. A free key
-- has no row of its own anywhere.
CREATE TABLE IF NOT EXISTS leasehold.token (
  slot int NOT NULL,
  part int NOT NULL DEFAULT 0,
  last bigint NOT NULL,
  PRIMARY KEY (slot, part)) WITH (fillfactor = 50);

-- Who holds a key (token is set) or waits for it, until ends. mode: x exclusive, w write, r read;
-- s: read, with a share (label begins with <permits>/<of> and a space); b: a hold that was revoked,
-- and keeps everybody out; z: the key rests after a release; l: wants a message and has no place.
-- place: at most 0 for whoever keeps others out, then those who wait in their order, and at the
-- end, with the largest number, l. hears: messages reach whoever waits, so that its place may end
-- soon after one. called: the key was handed over to it. There is no index on ends, so renewals are
-- HOT. Nothing is changed where the table is there: an index would wait for whoever reads it, and
-- everybody would wait behind it.
DO $$ BEGIN
  IF EXISTS (SELECT FROM leasehold.lock_meta m WHERE m.version <> 4) THEN
    RAISE EXCEPTION 'the schema of the locks is of another version' USING ERRCODE = 'LH007';
  END IF;
  IF pg_catalog.to_regclass('leasehold.claim') IS NULL THEN
    CREATE TABLE leasehold.claim (
      owner uuid PRIMARY KEY,
      key text COLLATE "C" NOT NULL,
      place bigint NOT NULL,
      mode "char" NOT NULL,
      token bigint,
      ends timestamptz NOT NULL,
      ttl interval NOT NULL,
      label text NOT NULL,
      hears bool NOT NULL,
      called bool NOT NULL)
      WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
    CREATE INDEX claim_line ON leasehold.claim (key, place);
  END IF;
END $$;

-- Claims that were withdrawn or revoked: a request of theirs that arrives later is refused.
CREATE TABLE IF NOT EXISTS leasehold.withdrawn (
  owner uuid PRIMARY KEY,
  until timestamptz NOT NULL);

-- Of a row that is there nothing is asked: a call may be writing it.
INSERT INTO leasehold.token (slot, last) SELECT s.slot, 0 FROM pg_catalog.generate_series(0, 4095) AS s(slot)
  WHERE NOT EXISTS (SELECT FROM leasehold.token t WHERE t.slot = s.slot) ON CONFLICT DO NOTHING;

-- What a dump does not carry: the server, the database and the table of the claims. A standby has
-- the same.
CREATE OR REPLACE FUNCTION leasehold.life() RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RETURN (SELECT concat_ws('/', s.system_identifier, d.oid, 'leasehold.claim'::regclass::oid)
    FROM pg_control_system() s, pg_database d WHERE d.datname = current_database());
END $$;

-- A life that nobody has seen yet grants at once. While clients are connected the tables are new,
-- and their holders are not.
INSERT INTO leasehold.lock_meta (version, system, timeline)
  SELECT 4, CASE WHEN EXISTS (SELECT FROM pg_catalog.pg_stat_activity a
      WHERE a.datname = pg_catalog.current_database() AND a.application_name = 'leasehold'::text AND a.pid <> pg_catalog.pg_backend_pid())
    THEN '' ELSE leasehold.life() END, pg_catalog.substr(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 1, 8)
    WHERE NOT EXISTS (SELECT FROM leasehold.lock_meta) ON CONFLICT DO NOTHING;

-- Lets one call at a time decide about a key, to the end of its transaction. The decision needs a
-- new snapshot for each statement.
CREATE OR REPLACE FUNCTION leasehold.enter_key(k text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION 'the locks need READ COMMITTED' USING ERRCODE = 'LH002';
  END IF;
  PERFORM pg_advisory_xact_lock(1818584932, hashtext(k));
END $$;

-- An answer is a promise: its commit waits for the disk, and for synchronous standbys.
CREATE OR REPLACE FUNCTION leasehold.promise() RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF current_setting('synchronous_commit') IN ('off', 'local', 'remote_write') THEN
    PERFORM set_config('synchronous_commit', 'on', true);
  END IF;
END $$;

-- The row of lock_meta. A life or a timeline that is not the one of before is stored, and grants
-- nothing for max_ttl. The claims of another life are deleted: they may have been released since,
-- or taken over where they were made. seen: the life that the caller saw last. To be called before
-- any lock of a claim.
CREATE OR REPLACE FUNCTION leasehold.checked(seen text) RETURNS leasehold.lock_meta
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  meta leasehold.lock_meta;
  this constant text := leasehold.life();
  line constant text := substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8);
BEGIN
  SELECT * INTO STRICT meta FROM leasehold.lock_meta;
  IF meta.closed_until > clock_timestamp() + meta.max_ttl THEN
    -- The clock was put back.
    UPDATE leasehold.lock_meta m
      SET closed_until = least(m.closed_until, clock_timestamp() + m.max_ttl)
      RETURNING * INTO STRICT meta;
  END IF;
  IF (meta.system, meta.timeline, coalesce(seen, this)) = (this, line, this) THEN RETURN meta; END IF;
  PERFORM leasehold.promise();
  UPDATE leasehold.lock_meta m SET system = this, timeline = line, closed_until = greatest(m.closed_until, clock_timestamp() + m.max_ttl)
    WHERE (m.system, m.timeline, coalesce(seen, this)) <> (this, line, this);
  -- Only the call that stored the life: a later one would delete what was granted in it.
  IF FOUND AND meta.system <> this THEN DELETE FROM leasehold.claim; END IF;
  SELECT * INTO STRICT meta FROM leasehold.lock_meta;
  RETURN meta;
END $$;

-- What ends later than a call would have made it end, because the clock was put back, ends within
-- its length from now on. A lease is over before its row all the same. How long a place was to last
-- nobody knows: ten minutes at most.
CREATE OR REPLACE FUNCTION leasehold.cut_short(k text, most interval) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE now_ constant timestamptz := clock_timestamp();
BEGIN
  UPDATE leasehold.claim x SET ends = now_ + m.most FROM (
    SELECT c.owner,
      greatest(CASE WHEN c.place > 0 THEN interval '10 min' ELSE c.ttl END, cut_short.most) AS most
      FROM leasehold.claim c WHERE c.key = k FOR NO KEY UPDATE SKIP LOCKED) m
    WHERE x.owner = m.owner AND x.ends > now_ + m.most;
END $$;

-- How many permits the shares have together that hold a key, and when the first of them ends.
-- all_rows: also those that are over and were not deleted, because a call may be renewing them.
CREATE OR REPLACE FUNCTION leasehold.taken(k text, all_rows bool, OUT permits bigint, OUT first_end timestamptz)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  SELECT coalesce(sum(split_part(c.label, '/', 1)::bigint), 0), min(c.ends) INTO permits, first_end FROM leasehold.claim c
    WHERE c.key = k AND c.place <= 0 AND c.mode = 's' AND (all_rows OR c.ends > clock_timestamp());
END $$;

-- Gives a key to whoever may be granted it now: the first of those who wait, and readers behind a
-- first reader, shares as far as they fit. Nobody else is granted it before them, and they have
-- used up their place if they do not ask within a second; without that a place of whoever hears no
-- messages lasts as long as it did. It sends them a message, unless they had one (is_freed: the key
-- was freed just now). It sends none while nobody waits, because a commit that notifies takes a
-- lock over the whole instance, and none while the server's queue of messages is nearly full: a
-- full one would undo the call at its end.
CREATE OR REPLACE FUNCTION leasehold.hand_over(k text, is_freed bool) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  c record; held "char"; first "char"; head bigint; is_notified bool; taken bigint; of_ bigint;
  can_notify constant bool := pg_notification_queue_usage() < 0.9;
  no_place constant bigint := 9223372036854775807;
BEGIN
  IF is_freed AND can_notify THEN
    WITH gone AS (DELETE FROM leasehold.claim x WHERE x.key = k AND x.place = no_place RETURNING x.owner)
      SELECT count(*) INTO head FROM gone, LATERAL pg_notify('leasehold', left(gone.owner::text, 13));
    head := NULL;
  END IF;
  SELECT x.mode INTO held FROM leasehold.claim x
    WHERE x.key = k AND x.place <= 0 AND x.ends > clock_timestamp() ORDER BY x.place LIMIT 1;
  IF held NOT IN ('r', 's') THEN RETURN; END IF;
  FOR c IN SELECT x.owner, x.place, x.mode, x.ttl, x.hears, x.called, x.label FROM leasehold.claim x
      WHERE x.key = k AND x.place > 0 AND x.place < no_place AND x.ends > clock_timestamp() ORDER BY x.place LOOP
    IF head IS NULL THEN
      head := c.place;
      -- They were over when they were passed.
      DELETE FROM leasehold.claim x WHERE x.key = k AND x.place > 0 AND x.place < head;
    END IF;
    EXIT WHEN (c.called AND NOT is_freed) OR first NOT IN ('r', 's')
      OR (c.mode NOT IN ('r', 's') AND coalesce(first, held) IN ('r', 's'));
    IF c.mode = 's' THEN
      taken := coalesce(taken, (SELECT t.permits FROM leasehold.taken(k, false) t)) + split_part(c.label, '/', 1)::bigint;
      -- Whoever is called may ask before those before it, so together they fit for each of them.
      of_ := least(of_, split_part(split_part(c.label, ' ', 1), '/', 2)::bigint);
      EXIT WHEN taken > of_;
    END IF;
    first := c.mode;
    is_notified := c.hears AND can_notify;
    IF NOT c.called THEN
      UPDATE leasehold.claim x SET called = true,
          ends = CASE WHEN is_notified THEN least(x.ends, clock_timestamp() + least(c.ttl, interval '1 s')) ELSE x.ends END
        WHERE x.owner = c.owner;
    END IF;
    IF is_notified THEN PERFORM pg_notify('leasehold', left(c.owner::text, 13)); END IF;
  END LOOP;
  IF head IS NULL THEN
    DELETE FROM leasehold.claim x WHERE x.key = k AND x.place > 0 AND x.ends <= clock_timestamp();
  END IF;
END $$;

-- One attempt: o asks for k in the mode m for want ms (s: who begins with its share, and waits for
-- every earlier place), and keeps a place for place_for ms if it has to wait; 0 for none. can_hear:
-- messages reach it. answer: granted | busy | withdrawn (or it became a reader's) | closed.
-- left_ms: what is left of the grant, or until a retry may succeed; null: it is called before.
-- seen: the life that the caller's connection was made to; it is refused in another. It reads the
-- first of those who keep o out and no other, so its time does not grow with the places; a plan
-- that was made while the table was small must not read all of it later, and what a plan without
-- such a choice costs is no reason to compile it, which takes longer than the call. It waits for
-- other calls about the key for a moment only: over one connection requests for other keys are
-- behind it.
CREATE OR REPLACE FUNCTION leasehold.ask(k text, o uuid, m "char", want bigint, place_for bigint, who text,
  can_hear bool, seen text DEFAULT NULL, OUT answer text, OUT token bigint, OUT left_ms bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '400ms'
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
  me leasehold.claim; meta leasehold.lock_meta; now_ timestamptz; blocked timestamptz; held "char";
  held_until timestamptz; lasts interval; taken bigint; first_end timestamptz;
  my_place bigint; first_place bigint; dead uuid[]; before bigint;
  ms constant interval := '1 ms';
  no_place constant bigint := 9223372036854775807;
BEGIN
  IF m = 's' AND who !~ '^[1-9][0-9]{0,9}/[1-9][0-9]{0,9} ' THEN
    RAISE EXCEPTION 'a share says how many permits it takes, and of how many' USING ERRCODE = '22023';
  END IF;
  PERFORM leasehold.enter_key(k);
  IF seen <> leasehold.life() THEN
    RAISE EXCEPTION 'this is not the server that the connection was made to' USING ERRCODE = 'LH008';
  END IF;
  meta := leasehold.checked(NULL);
  IF EXISTS (SELECT FROM leasehold.withdrawn x WHERE x.owner = o) THEN answer := 'withdrawn'; RETURN; END IF;
  IF want * ms > meta.max_ttl THEN
    RAISE EXCEPTION 'the ttl is longer than max_ttl' USING ERRCODE = 'LH005', DETAIL = meta.max_ttl::text;
  END IF;
  now_ := clock_timestamp();
  IF EXISTS (SELECT FROM leasehold.claim c WHERE c.key = k) THEN
    -- A renewal of it is waited for, so that its answer and this one agree.
    SELECT * INTO me FROM leasehold.claim c WHERE c.owner = o FOR NO KEY UPDATE;
    now_ := clock_timestamp();
    IF me.ends <= now_ THEN DELETE FROM leasehold.claim WHERE owner = o; me := NULL; END IF;
    IF me.token IS NOT NULL THEN
      IF me.mode = 'r' AND m <> 'r' THEN answer := 'withdrawn'; RETURN; END IF;
      -- The first answer was lost: the same grant again.
      PERFORM leasehold.promise();
      UPDATE leasehold.claim SET ends = now_ + want * ms, ttl = want * ms WHERE owner = o;
      answer := 'granted'; token := me.token; left_ms := want; RETURN;
    END IF;
    my_place := CASE WHEN me.mode <> 'l' THEN me.place END;
    -- Those who hold a key at one time are readers, or one other. So the first says what the others
    -- are.
    SELECT c.mode, c.ends, c.ttl INTO held, held_until, lasts FROM leasehold.claim c
      WHERE c.key = k AND c.place <= 0 AND c.ends > now_ ORDER BY c.place LIMIT 1;
    IF held_until > now_ + greatest(lasts, meta.max_ttl) THEN
      PERFORM leasehold.cut_short(k, meta.max_ttl);
      held_until := now_ + greatest(lasts, meta.max_ttl);
    END IF;
    IF held IS NULL THEN
      -- A hold that is being renewed at this moment is skipped here, and blocks below: to wait for
      -- it could be a deadlock.
      DELETE FROM leasehold.claim WHERE owner IN (SELECT c.owner FROM leasehold.claim c
        WHERE c.key = k AND c.place <= 0 AND c.ends <= clock_timestamp() FOR UPDATE SKIP LOCKED);
      now_ := clock_timestamp();
      SELECT c.mode, c.ends INTO held, held_until FROM leasehold.claim c
        WHERE c.key = k AND c.place <= 0 ORDER BY c.place LIMIT 1;
    END IF;
    IF m = 's' AND held IN ('r', 's') THEN
      -- Each of them counts, so the first does not say how long the others last.
      IF EXISTS (SELECT FROM leasehold.claim c WHERE c.key = k AND c.place <= 0
          AND c.ends > now_ + greatest(c.ttl, meta.max_ttl)) THEN
        PERFORM leasehold.cut_short(k, meta.max_ttl);
      END IF;
      -- As above: one that is being renewed at this moment counts.
      DELETE FROM leasehold.claim WHERE owner IN (SELECT c.owner FROM leasehold.claim c
        WHERE c.key = k AND c.place <= 0 AND c.mode = 's' AND c.ends <= clock_timestamp() FOR UPDATE SKIP LOCKED);
      now_ := clock_timestamp();
      SELECT t.permits, t.first_end INTO taken, first_end FROM leasehold.taken(k, true) t;
      IF taken + split_part(who, '/', 1)::bigint > split_part(split_part(who, ' ', 1), '/', 2)::bigint THEN
        blocked := first_end;
      END IF;
    END IF;
    IF held IS NOT NULL AND NOT (held IN ('r', 's') AND m IN ('r', 's')) THEN
      blocked := held_until;
    ELSIF blocked IS NULL AND me.called IS NOT TRUE THEN
      FOR again IN 1..2 LOOP
        SELECT c.ends, c.place INTO blocked, first_place FROM leasehold.claim c
          WHERE c.key = k AND c.place > 0 AND c.place < coalesce(my_place, no_place) AND c.ends > now_ AND NOT (c.mode = 'r' AND m = 'r')
          ORDER BY c.place LIMIT 1;
        IF blocked > now_ + greatest(interval '10 min', meta.max_ttl) THEN
          PERFORM leasehold.cut_short(k, meta.max_ttl);
        END IF;
        EXIT WHEN blocked IS NULL OR held IS NOT NULL OR again = 2;
        -- The time of its last holder ended, so nobody has handed it over.
        PERFORM leasehold.hand_over(k, false);
      END LOOP;
      -- The next one checks whether the first used its turn, and the others, one after the other,
      -- whether those between did. If all asked at once, they would keep the first from asking.
      IF held IS NULL AND blocked IS NOT NULL THEN
        SELECT least(blocked + count(*) * interval '1 s', now_ + want * ms) INTO blocked FROM (SELECT FROM leasehold.claim c
          WHERE c.key = k AND c.place > first_place AND c.place < coalesce(my_place, no_place) AND c.ends > now_
          ORDER BY c.place LIMIT 16) between_us;
      END IF;
    END IF;
    IF blocked IS NOT NULL THEN
      answer := 'busy'; left_ms := greatest(1, ceil(extract(epoch FROM blocked - now_) * 1000));
      -- A place that is lost in a crash costs its order and nothing else.
      PERFORM set_config('synchronous_commit', 'off', true);
      IF place_for > 0 AND my_place IS NOT NULL THEN
        UPDATE leasehold.claim SET ends = now_ + place_for * ms, called = false WHERE owner = o;
      ELSIF place_for > 0 THEN
        SELECT c.place INTO my_place FROM leasehold.claim c WHERE c.key = k AND c.place < no_place ORDER BY c.place DESC LIMIT 1;
        my_place := greatest(my_place, 0) + 1;
        INSERT INTO leasehold.claim AS c
          VALUES (o, k, my_place, m, NULL, now_ + place_for * ms, want * ms, who, can_hear, false)
          ON CONFLICT (owner) DO UPDATE
            SET place = excluded.place, mode = excluded.mode, ends = excluded.ends, ttl = excluded.ttl, label = excluded.label,
              hears = excluded.hears;
      END IF;
      IF can_hear AND place_for > 0 THEN
        -- Far behind: it is called when it is its turn, and those before it ask when the time of a
        -- hold is over. Those who died do not, and are deleted, some at a time.
        FOR again IN 1..4 LOOP
          SELECT array_agg(b.owner) FILTER (WHERE b.ends <= now_), count(*) INTO dead, before FROM (
            SELECT c.owner, c.ends FROM leasehold.claim c WHERE c.key = k AND c.place > 0 AND c.place < my_place
              ORDER BY c.place LIMIT 17) b;
          EXIT WHEN dead IS NULL;
          DELETE FROM leasehold.claim c WHERE c.owner = ANY(dead);
        END LOOP;
        IF dead IS NULL AND before = 17 THEN left_ms := NULL; END IF;
      END IF;
      RETURN;
    END IF;
  END IF;
  PERFORM leasehold.promise();
  IF meta.closed_until > now_ THEN
    answer := 'closed'; left_ms := ceil(extract(epoch FROM meta.closed_until - now_) * 1000); RETURN;
  END IF;
  -- It grows with the time after the tables were lost, and by one while the clock was put back.
  SELECT greatest(max(x.last) + 1, floor(extract(epoch FROM now_) * 1000000)::bigint) INTO token
    FROM leasehold.token x WHERE x.slot = hashtext(k) & 4095;
  UPDATE leasehold.token x SET last = greatest(x.last, ask.token) WHERE (x.slot, x.part) = (
    SELECT f.slot, f.part FROM leasehold.token f WHERE f.slot = hashtext(k) & 4095 LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED);
  IF NOT FOUND THEN
    INSERT INTO leasehold.token VALUES (hashtext(k) & 4095, 1 + floor(random() * 2147483646)::int, token);
  END IF;
  INSERT INTO leasehold.claim AS c VALUES (o, k, 0, m, ask.token, now_ + want * ms, want * ms, who, can_hear, false)
    ON CONFLICT (owner) DO UPDATE
      SET place = 0, mode = excluded.mode, token = excluded.token, ends = excluded.ends, ttl = excluded.ttl, label = excluded.label;
  IF m = 's' AND my_place IS NOT NULL THEN
    -- Those behind it may fit too, and who freed the key may not have known: a ttl ended.
    PERFORM leasehold.hand_over(k, false);
  END IF;
  answer := 'granted'; left_ms := want;
END $$;

-- Extends n holds by their ttl, in one statement. Answers the positions of those that it extended,
-- and, with is_extended = false, of those that another call holds at this moment: to wait for one
-- would cost the others their time. The rest are gone, and so are all whose claims are of another
-- life than this server's.
CREATE OR REPLACE FUNCTION leasehold.renew(owners uuid[]) RETURNS TABLE (n bigint, is_extended bool)
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '1s' AS $$
  SELECT leasehold.promise();
  WITH this AS MATERIALIZED (
    SELECT FROM leasehold.lock_meta m WHERE m.system = leasehold.life()),
  mine AS (
    SELECT c.owner FROM leasehold.claim c WHERE c.owner = ANY(owners) AND c.token IS NOT NULL AND EXISTS (SELECT FROM this)
      FOR NO KEY UPDATE SKIP LOCKED),
  extended AS (
    UPDATE leasehold.claim c SET ends = clock_timestamp() + c.ttl FROM mine
     WHERE c.owner = mine.owner AND c.ends > clock_timestamp() RETURNING c.owner)
  SELECT u.n, e.owner IS NOT NULL FROM unnest(owners) WITH ORDINALITY AS u(owner, n)
    JOIN leasehold.claim c ON c.owner = u.owner AND c.token IS NOT NULL
    LEFT JOIN mine ON mine.owner = u.owner LEFT JOIN extended e ON e.owner = u.owner
    WHERE (e.owner IS NOT NULL OR mine.owner IS NULL) AND EXISTS (SELECT FROM this);
$$;

-- A release, or with bury a withdrawal: then what is still on its way is refused. Answers whether o
-- held the key.
CREATE OR REPLACE FUNCTION leasehold.leave(k text, o uuid, bury bool, OUT held bool)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '200ms'
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE c record;
BEGIN
  PERFORM leasehold.enter_key(k);
  IF bury THEN
    PERFORM leasehold.promise();
    DELETE FROM leasehold.withdrawn WHERE owner IN (SELECT x.owner FROM leasehold.withdrawn x
      WHERE x.until <= clock_timestamp() LIMIT 100 FOR UPDATE SKIP LOCKED);
    INSERT INTO leasehold.withdrawn SELECT o, clock_timestamp() + greatest(m.max_ttl, '1 min') FROM leasehold.lock_meta m
      ON CONFLICT (owner) DO UPDATE SET until = excluded.until;
  ELSE
    -- A release that is lost in a crash only delays the next holder.
    PERFORM set_config('synchronous_commit', 'off', true);
  END IF;
  DELETE FROM leasehold.claim x WHERE x.owner = o AND x.key = k RETURNING x.token, x.ends INTO c;
  held := coalesce(c.token IS NOT NULL AND c.ends > clock_timestamp(), false);
  -- Within the deleting call nobody else can enter or wait.
  IF EXISTS (SELECT FROM leasehold.claim x WHERE x.key = k) THEN PERFORM leasehold.hand_over(k, true); END IF;
END $$;

-- A release, after which nobody is granted the key for ms. Answers whether o held it. The first of
-- those who wait get a message: it serves nobody, but a job for which they wait may be done.
CREATE OR REPLACE FUNCTION leasehold.rest(k text, o uuid, ms bigint, OUT held bool)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '200ms'
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE now_ timestamptz; ends_ timestamptz;
BEGIN
  PERFORM leasehold.enter_key(k), leasehold.promise();
  SELECT c.ends INTO ends_ FROM leasehold.claim c WHERE c.owner = o AND c.key = k AND c.token IS NOT NULL FOR UPDATE;
  now_ := clock_timestamp();
  held := coalesce(ends_ > now_, false);
  IF held THEN
    UPDATE leasehold.claim SET owner = gen_random_uuid(), mode = 'z', token = NULL, place = -1, label = '',
      ends = now_ + ms * interval '1 ms', ttl = ms * interval '1 ms' WHERE owner = o;
    IF pg_notification_queue_usage() < 0.9 THEN
      PERFORM pg_notify('leasehold', left(w.owner::text, 13)) FROM (
        SELECT c.owner FROM leasehold.claim c
          WHERE c.key = k AND c.place > 0 AND c.hears AND c.ends > now_
          ORDER BY c.place LIMIT 500) w;
    END IF;
  END IF;
END $$;

-- o wants a message when the key may be free, for at most ms. A claim that has a place gets one
-- anyway.
CREATE OR REPLACE FUNCTION leasehold.watch(k text, o uuid, ms bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '400ms' AS $$
BEGIN
  PERFORM set_config('synchronous_commit', 'off', true);
  INSERT INTO leasehold.claim
    VALUES (o, k, 9223372036854775807, 'l', NULL, clock_timestamp() + ms * interval '1 ms', '0', '', true, false)
    ON CONFLICT DO NOTHING;
END $$;

-- A write hold becomes a read hold. answer: read | exclusive | gone.
CREATE OR REPLACE FUNCTION leasehold.downgrade(k text, o uuid, OUT answer text, OUT token bigint, OUT left_ms bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '200ms' AS $$
DECLARE me leasehold.claim; now_ timestamptz;
BEGIN
  PERFORM leasehold.enter_key(k), leasehold.promise();
  SELECT * INTO me FROM leasehold.claim c WHERE c.owner = o AND c.key = k FOR NO KEY UPDATE;
  now_ := clock_timestamp();
  IF me.token IS NULL OR me.ends <= now_ THEN answer := 'gone'; RETURN; END IF;
  IF me.mode = 'x' THEN answer := 'exclusive'; RETURN; END IF;
  UPDATE leasehold.claim SET mode = 'r' WHERE owner = o AND mode = 'w';
  answer := 'read'; token := me.token; left_ms := floor(extract(epoch FROM me.ends - now_) * 1000);
  PERFORM leasehold.hand_over(k, true);
END $$;

-- Takes a key away from its holders. With after_ttl nobody is granted the key before their time is
-- over. Answers for how long that is; null: nobody held it.
CREATE OR REPLACE FUNCTION leasehold.take_away(k text, after_ttl bool, OUT left_ms bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '200ms' AS $$
DECLARE now_ timestamptz; until_ timestamptz; owners uuid[]; rested bigint := 0;
BEGIN
  PERFORM leasehold.enter_key(k), leasehold.promise();
  SELECT array_agg(h.owner) INTO owners FROM (SELECT c.owner FROM leasehold.claim c WHERE c.key = k AND c.place <= 0 AND c.token IS NOT NULL
    ORDER BY c.owner FOR UPDATE) h;
  now_ := clock_timestamp();
  SELECT array_agg(c.owner), max(least(c.ends, now_ + c.ttl)) INTO owners, until_
    FROM leasehold.claim c
    WHERE c.owner = ANY(owners) AND c.ends > now_;
  INSERT INTO leasehold.withdrawn SELECT u.owner, now_ + greatest(m.max_ttl, '1 min') FROM leasehold.lock_meta m, unnest(owners) AS u(owner)
    ON CONFLICT (owner) DO UPDATE SET until = excluded.until;
  IF after_ttl THEN
    UPDATE leasehold.claim SET owner = gen_random_uuid(), mode = 'b', token = NULL, place = -1,
      ends = least(ends, now_ + ttl) WHERE owner = ANY(owners);
  ELSE
    SELECT count(*) INTO rested FROM leasehold.claim WHERE key = k AND place <= 0 AND mode = 'z' AND ends > now_;
    DELETE FROM leasehold.claim WHERE owner = ANY(owners) OR (key = k AND place <= 0 AND mode IN ('b', 'z'));
  END IF;
  PERFORM leasehold.hand_over(k, true);
  IF owners IS NOT NULL OR rested > 0 THEN
    left_ms := CASE WHEN after_ttl THEN ceil(extract(epoch FROM until_ - now_) * 1000) ELSE 0 END;
  END IF;
END $$;

-- The keys that are held: one (is_prefix = false), or all that begin with k, in order. mode is null
-- while a revoked hold's time runs out, and z while the key rests. It answers no owner: whoever
-- knows one can release its lock.
CREATE OR REPLACE FUNCTION leasehold.look(k text, is_prefix bool)
RETURNS TABLE (key text, label text, token bigint, mode text, left_ms bigint, held_ms bigint, holders bigint, queue bigint,
  labels text[], waiters text[])
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  -- Two branches, so that a question about one key reads the rows of that key only.
  WITH live AS (
    SELECT c.key, c.place, c.token, c.ends, s.mode, s.label
    FROM (SELECT c.* FROM leasehold.claim c WHERE NOT is_prefix AND c.key = k AND c.ends > now()
      UNION ALL
      SELECT c.* FROM leasehold.claim c WHERE is_prefix AND starts_with(c.key, k) AND c.ends > now()) c,
    LATERAL (SELECT CASE c.mode WHEN 's' THEN 'r' ELSE c.mode END AS mode,
      CASE c.mode WHEN 's' THEN substr(c.label, strpos(c.label, ' ') + 1) ELSE c.label END AS label) s),
  keys AS (
    SELECT l.key, count(*) FILTER (WHERE l.token IS NOT NULL) AS holders,
      count(*) FILTER (WHERE l.token IS NULL AND l.mode IN ('x', 'w', 'r')) AS queue,
      max(l.ends) FILTER (WHERE l.mode IN ('b', 'z')) AS barred, bool_or(l.mode = 'z') AS rests
    FROM live l GROUP BY l.key)
  SELECT g.key, h.label, h.token, CASE WHEN g.holders = 0 AND g.rests THEN 'z' ELSE h.mode::text END,
    greatest(1, floor(extract(epoch FROM coalesce(h.ends, g.barred) - now()) * 1000))::bigint,
    -- A token is the time of its grant in microseconds, unless the clock was put back.
    floor(nullif(greatest(extract(epoch FROM now()) * 1000 - h.token / 1000.0, 0), 0))::bigint, g.holders, g.queue,
    CASE WHEN is_prefix THEN '{}' ELSE ARRAY(SELECT l.label FROM live l WHERE l.token IS NOT NULL ORDER BY l.token LIMIT 1024) END,
    CASE WHEN is_prefix THEN '{}' ELSE ARRAY(SELECT l.mode::text || ' ' || l.label FROM live l
      WHERE l.token IS NULL AND l.mode IN ('x', 'w', 'r') ORDER BY l.place LIMIT 64) END
  FROM keys g LEFT JOIN LATERAL (
    SELECT l.* FROM live l WHERE l.key = g.key AND l.token IS NOT NULL ORDER BY l.token DESC LIMIT 1) h ON true
  WHERE g.holders > 0 OR g.barred IS NOT NULL ORDER BY g.key;
$$;

-- What a client checks when it connects. seen: the life that it saw last, over any connection. A
-- client of another life may hold what this one does not know, so nothing is granted for max_ttl.
-- It waits for a moment only for somebody who locks the tables: its client does not wait longer,
-- and connects again.
CREATE OR REPLACE FUNCTION leasehold.hello(seen text, OUT version int, OUT max_ttl_ms bigint, OUT loses_writes text,
  OUT has_async_standbys bool, OUT closed_ms bigint, OUT encoding text, OUT life text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '1s' AS $$
DECLARE meta leasehold.lock_meta;
BEGIN
  IF pg_is_in_recovery() THEN
    RAISE EXCEPTION 'this server is a standby' USING ERRCODE = '25006';
  END IF;
  meta := leasehold.checked(seen);
  life := meta.system;
  version := meta.version;
  encoding := current_setting('server_encoding');
  max_ttl_ms := extract(epoch FROM meta.max_ttl) * 1000;
  closed_ms := CASE WHEN meta.closed_until > clock_timestamp()
    THEN ceil(extract(epoch FROM meta.closed_until - clock_timestamp()) * 1000) ELSE 0 END;
  SELECT string_agg(s.name, ', ') INTO loses_writes FROM pg_settings s
    WHERE s.name IN ('fsync', 'full_page_writes') AND s.setting = 'off';
  -- Subscribers of logical replication, and backups, take over nothing.
  has_async_standbys := current_setting('synchronous_standby_names') = '' AND EXISTS (
    SELECT FROM pg_stat_replication r WHERE r.application_name NOT IN ('pg_basebackup', 'pg_receivewal') AND r.pid NOT IN (
      SELECT s.active_pid FROM pg_replication_slots s WHERE s.slot_type = 'logical' AND s.active_pid IS NOT NULL));
END $$;

-- Deletes what is over and nobody asked for again, at most hourly. Answers how many rows.
CREATE OR REPLACE FUNCTION leasehold.tidy() RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE n bigint; more bigint;
BEGIN
  PERFORM FROM leasehold.lock_meta m WHERE m.swept_at < clock_timestamp() - interval '1 hour' FOR NO KEY UPDATE SKIP LOCKED;
  IF NOT FOUND THEN RETURN 0; END IF;
  UPDATE leasehold.lock_meta SET swept_at = clock_timestamp();
  DELETE FROM leasehold.claim WHERE owner IN (SELECT c.owner FROM leasehold.claim c WHERE c.ends <= clock_timestamp() FOR UPDATE SKIP LOCKED);
  GET DIAGNOSTICS n = ROW_COUNT;
  DELETE FROM leasehold.withdrawn WHERE owner IN (SELECT x.owner FROM leasehold.withdrawn x WHERE x.until <= clock_timestamp() FOR UPDATE SKIP LOCKED);
  GET DIAGNOSTICS more = ROW_COUNT;
  RETURN n + more;
END $$;
