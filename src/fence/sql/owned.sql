-- Whoever owns a function runs code with the rights of the role that calls it. So everything in the
-- schema belongs to the role that runs this or to a superuser, and nobody else may add to it: a
-- trigger runs with the rights of the functions that change its table. From here to the end of the
-- script nothing is found in another schema: the database's owner may set a search_path for every
-- session. The types of a block are found before its first statement.
DO $$
DECLARE what pg_catalog.text; whose pg_catalog.text;
BEGIN
  PERFORM pg_catalog.set_config('leasehold.path', pg_catalog.current_setting('search_path'), true),
    pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
  SELECT x.what, CASE WHEN x.who = 0::oid THEN 'public' ELSE pg_catalog.pg_get_userbyid(x.who)::text END INTO what, whose FROM (
    SELECT 'the schema leasehold'::text, n.nspowner FROM pg_catalog.pg_namespace n WHERE n.nspname = 'leasehold'::name
    UNION ALL
    SELECT 'the right to create in the schema leasehold'::text, a.grantee
      FROM pg_catalog.pg_namespace n, pg_catalog.aclexplode(n.nspacl) a
      WHERE n.nspname = 'leasehold'::name AND a.privilege_type = 'CREATE'::text
    UNION ALL
    SELECT 'leasehold.'::text || c.relname::text, c.relowner
      FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'leasehold'::name
    UNION ALL
    SELECT 'leasehold.'::text || p.proname::text, p.proowner
      FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = 'leasehold'::name
    UNION ALL
    SELECT 'the right to make triggers on leasehold.'::text || c.relname::text, a.grantee
      FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace, pg_catalog.aclexplode(c.relacl) a
      WHERE n.nspname = 'leasehold'::name AND a.privilege_type = 'TRIGGER'::text
    UNION ALL
    SELECT 'the function of a trigger on leasehold.'::text || c.relname::text, p.proowner
      FROM pg_catalog.pg_trigger t JOIN pg_catalog.pg_class c ON c.oid = t.tgrelid
        JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace JOIN pg_catalog.pg_proc p ON p.oid = t.tgfoid
      WHERE n.nspname = 'leasehold'::name
    ) AS x(what, who)
    WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_roles r WHERE r.oid = x.who AND (r.rolsuper OR r.rolname = current_user))
    LIMIT 1;
  IF what IS NOT NULL THEN
    RAISE EXCEPTION '% belongs to %', what, whose USING ERRCODE = 'LH006';
  END IF;
END $$;
