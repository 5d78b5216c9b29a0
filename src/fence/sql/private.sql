-- The tables are for their owner only, whatever rights the database gives on new ones (ALTER
-- DEFAULT PRIVILEGES): whoever can read a claim can release it, and whoever may make a trigger runs
-- code with the owner's rights.
DO $$
DECLARE r record;
BEGIN
  FOR r IN SELECT DISTINCT c.relname::text AS what, CASE WHEN a.grantee = 0::oid THEN 'PUBLIC'::text
        ELSE pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(a.grantee)::text) END AS whose
      FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace, pg_catalog.aclexplode(c.relacl) a
      WHERE n.nspname = 'leasehold'::name AND a.grantee <> c.relowner LOOP
    EXECUTE 'REVOKE ALL ON TABLE leasehold.'::text || pg_catalog.quote_ident(r.what) || ' FROM '::text || r.whose || ' CASCADE'::text;
  END LOOP;
  -- What follows in the same transaction finds its names again.
  PERFORM pg_catalog.set_config('search_path', pg_catalog.current_setting('leasehold.path', true), true);
END $$;
