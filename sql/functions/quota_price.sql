-- quota_price: what a usage costs by the price table, in nanos of the billing currency; NULL where that is unknown.
--
-- p_model with the suffix :batch asks for the batch price. Cached tokens are part of the input tokens. p_at is the
-- time of admission: the price that was in force then, and the currency's latest rate at or before that billing
-- day. Exact, and rounded once, at the nano, half away from zero. A price over the largest amount of one call
-- (10^15 nanos) is none. Changes nothing, takes no lock.
CREATE OR REPLACE FUNCTION quota_price(
    p_model text, p_in_tokens bigint, p_cached_in_tokens bigint, p_out_tokens bigint, p_at timestamptz
) RETURNS bigint
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
    SELECT CASE WHEN c.nanos <= 1000000000000000 THEN c.nanos::bigint END
    FROM quota_price_find(p_model, p_in_tokens, p_at) f,
         quota_price_nanos(f.input, f.cached_input, f.output, f.rate, p_in_tokens, p_cached_in_tokens, p_out_tokens) c (nanos)
$$;

-- Prices are per million tokens, and a unit has a thousand million nanos: hence the thousand.
CREATE OR REPLACE FUNCTION quota_price_nanos(
    p_input numeric, p_cached_input numeric, p_output numeric, p_rate numeric,
    p_in_tokens bigint, p_cached_in_tokens bigint, p_out_tokens bigint
) RETURNS numeric
LANGUAGE sql IMMUTABLE
AS $$
    SELECT round(((p_in_tokens - c.cached) * p_input + c.cached * coalesce(p_cached_input, p_input)
                  + p_out_tokens * p_output) * 1000 * p_rate)
    FROM (SELECT least(coalesce(p_cached_in_tokens, 0), p_in_tokens)::numeric AS cached) c
$$;

-- The price in force, and the rate that makes it the billing currency's (1 for its own). fault: NULL, no_model,
-- unknown_model or no_rate, as in quota_unpriced; then rate is NULL. p_at 'infinity' asks whether the model has any
-- price, whenever it is in force and whatever the tokens.
CREATE OR REPLACE FUNCTION quota_price_find(
    p_model text, p_in_tokens bigint, p_at timestamptz,
    OUT fault text, OUT origin text, OUT provider text, OUT model text, OUT processing text, OUT valid_from timestamptz,
    OUT from_time time, OUT input_above bigint, OUT currency text, OUT input numeric, OUT cached_input numeric,
    OUT output numeric, OUT source text, OUT rate numeric, OUT rate_from date
) RETURNS record
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
AS $$
DECLARE
    v_name     text := lower(p_model);
    v_provider text;
    v_model    text;
    v_last     text;
    v_seller   text;
    v_batch    text;
    v_prefix   text := '';
    v_rest     text;
    v_time     time := coalesce((p_at AT TIME ZONE 'UTC')::time, '24:00');
BEGIN
    IF p_model IS NULL THEN
        fault := 'no_model';
        RETURN;
    END IF;
    processing := CASE WHEN right(v_name, 6) = ':batch' THEN 'batch' ELSE 'standard' END;
    IF processing = 'batch' THEN
        -- a reseller's list may hold batch models of their own, under this very name
        SELECT m.provider, m.model INTO v_seller, v_batch FROM quota_price_match(v_name) m WHERE m.model LIKE '%:batch';
        v_name := left(v_name, -6);
    END IF;
    SELECT m.provider, m.model INTO v_provider, v_model FROM quota_price_match(v_name) m;
    v_rest := v_name;
    IF position('/' IN v_name) > 0 THEN
        v_prefix := split_part(v_name, '/', 1);
        v_rest := substr(v_name, length(v_prefix) + 2);
    END IF;
    v_last := substring(v_name FROM '[^/]*$');

    SELECT p.origin, p.provider, p.model, p.valid_from, p.from_time, p.input_above, p.currency, p.input, p.cached_input,
           p.output, p.source
    INTO origin, provider, model, valid_from, from_time, input_above, currency, input, cached_input, output, source
    FROM (
        -- overrides: the nearest first
        SELECT q.*, CASE WHEN q.provider = v_prefix AND q.model = v_rest AND v_prefix <> '' THEN 1
                         WHEN q.provider = '' AND q.model = v_name THEN 2
                         WHEN q.provider = v_provider AND q.model = lower(v_model) THEN 3
                         WHEN q.provider = '' AND q.model = lower(v_model) THEN 4
                         WHEN q.model = v_name AND v_provider IS NULL
                              AND NOT EXISTS (SELECT FROM quota_prices o WHERE o.model = q.model AND o.origin = 'file'
                                                                           AND o.provider <> q.provider) THEN 5
                         WHEN q.provider = '' AND q.model = v_last THEN 6 END AS place
        FROM quota_prices q
        WHERE q.model IN (v_name, v_rest, v_last, lower(v_model)) AND q.origin = 'file'
          AND q.processing = quota_price_find.processing
        UNION ALL
        SELECT q.*, 7 FROM quota_prices q
        WHERE q.model = v_model AND q.origin = 'package' AND q.provider = v_provider
          AND q.processing = quota_price_find.processing
        UNION ALL
        SELECT q.*, 8 FROM quota_prices q
        WHERE q.model = v_batch AND q.origin = 'package' AND q.provider = v_seller AND q.processing = 'standard') p
    WHERE p.place IS NOT NULL AND p.valid_from <= p_at
      AND p.from_time <= v_time AND (p.input_above = 0 OR p.input_above < p_in_tokens OR p_at = 'infinity')
      AND (p.input IS NOT NULL OR p_at < 'infinity')
    ORDER BY p.place, p.valid_from DESC, p.from_time DESC, p.input_above DESC
    LIMIT 1;
    IF input IS NULL THEN
        fault := 'unknown_model';
        RETURN;
    END IF;
    SELECT 1 INTO rate FROM quota_settings s WHERE s.currency = quota_price_find.currency;
    IF rate IS NULL THEN
        SELECT c.rate, c.valid_from INTO rate, rate_from FROM quota_currency_rates c
        WHERE c.currency = quota_price_find.currency AND c.valid_from <= quota_day(p_at)
        ORDER BY c.valid_from DESC LIMIT 1;
        IF rate IS NULL THEN
            fault := 'no_rate';
        END IF;
    END IF;
END $$;

-- Which of the package's models a lower-case name means; no row or NULLs: none. As the package finds it: the
-- provider by a prefix before the first slash where that names one, else by the name; then that provider's model.
CREATE OR REPLACE FUNCTION quota_price_match(p_name text, OUT provider text, OUT model text) RETURNS record
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    v_scope text;
    v_slash int := position('/' IN p_name);
BEGIN
    SELECT n.provider, n.model INTO provider, model FROM quota_price_names n WHERE n.name = p_name;
    IF FOUND THEN
        RETURN;
    END IF;
    IF v_slash > 1 THEN
        SELECT f.provider INTO v_scope FROM quota_price_rule('/', left(p_name, v_slash - 1)) f;
        IF v_scope IS NOT NULL THEN
            SELECT f.provider, f.model INTO provider, model
            FROM quota_price_model(v_scope, substr(p_name, v_slash + 1)) f;
        END IF;
    END IF;
    IF model IS NULL THEN
        SELECT f.provider INTO v_scope FROM quota_price_rule('', p_name) f;
        IF v_scope IS NOT NULL THEN
            SELECT f.provider, f.model INTO provider, model FROM quota_price_model(v_scope, p_name) f;
        END IF;
    END IF;
END $$;

-- A provider's model by its name, and where none is meant by it, by the name with a date at its end written
-- 2025-12-11 in place of 20251211.
CREATE OR REPLACE FUNCTION quota_price_model(p_scope text, p_name text, OUT provider text, OUT model text) RETURNS record
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    v_dated text := regexp_replace(p_name, '-(20\d{2})(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])(?=-|:|$)',
                                  '-\1-\2-\3', 'g');
BEGIN
    SELECT f.provider, f.model INTO provider, model FROM quota_price_rule(p_scope, p_name) f;
    IF model IS NULL AND v_dated <> p_name THEN
        SELECT f.provider, f.model INTO provider, model FROM quota_price_rule(p_scope, v_dated) f;
    END IF;
END $$;

-- What the first rule that holds for the name answers.
CREATE OR REPLACE FUNCTION quota_price_rule(p_scope text, p_name text, OUT provider text, OUT model text) RETURNS record
LANGUAGE sql STABLE
AS $$
    SELECT r.provider, r.model
    FROM quota_price_rules r
    WHERE r.scope = p_scope
    GROUP BY r.place, r.part, r.provider, r.model
    HAVING bool_and(CASE r.kind
        WHEN 'is' THEN p_name = r.literal
        WHEN 'starts' THEN starts_with(p_name, r.literal)
        WHEN 'ends' THEN right(p_name, length(r.literal)) = r.literal
        WHEN 'holds' THEN position(r.literal IN p_name) > 0
        ELSE p_name ~ r.literal END)
    ORDER BY r.place, r.part
    LIMIT 1
$$;
