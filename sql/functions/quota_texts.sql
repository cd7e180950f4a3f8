-- What people wrote into a list of texts, as a plain one: no NULLs, no blanks, no list in a list. Pure.
CREATE OR REPLACE FUNCTION quota_texts(p_texts text[]) RETURNS text[]
LANGUAGE sql IMMUTABLE
AS $$ SELECT coalesce(array_agg(btrim(t)), '{}') FROM unnest(p_texts) AS t WHERE btrim(t) <> '' $$;
