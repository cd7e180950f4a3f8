-- A department's month: counters in 16 slots, each with a band in which it may move by itself (docs/adr/0006).
--
-- The rule that makes a band safe: floors and ceilings of all slots, added up, stay within the tier that
-- band_tier names. Inside its band a slot is booked alone. Outside, all slots are locked in order, the month
-- is judged exactly, and new bands are drawn. Nobody waits for a slot with another slot of that month in hand.
-- A transaction books on the slot of its own backend, whoever admitted: one slot may be below zero, the sum not.
-- Tiers as numbers: 0 normal, 1 warning, 2 downgrade, 3 protected, 4 exhausted.

CREATE OR REPLACE FUNCTION quota_tier_name(p_tier int) RETURNS text
LANGUAGE sql IMMUTABLE
AS $$ SELECT (ARRAY['normal', 'warning', 'downgrade', 'protected', 'exhausted'])[coalesce(p_tier, 0) + 1] $$;

-- Where the month stands at p_now, from a snapshot (exact while the caller has all slots locked).
-- Budgets include live top-ups and are NULL where there is no limit; nanos are numeric: a cap may be any bigint.
CREATE OR REPLACE FUNCTION quota_department_standing(
    p_department text, p_environment text, p_month date, p_now timestamptz,
    OUT tokens_used numeric, OUT cost_used_nanos numeric, OUT budget_tokens numeric, OUT budget_cost_nanos numeric,
    OUT tier smallint, OUT valid_from timestamptz, OUT valid_until timestamptz,
    OUT warn_pct int, OUT downgrade_pct int, OUT protect_pct int,
    OUT base_tokens bigint, OUT base_cost_cents bigint,
    OUT downgrade_from text[], OUT downgrade_model text, OUT allowed_models text[]
) RETURNS record
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    v_topup_tokens numeric;
    v_topup_cents  numeric;
BEGIN
    SELECT greatest(coalesce(sum(s.tokens_used), 0), coalesce(sum(s.tokens_held), 0), 0),
           greatest(coalesce(sum(s.cost_used_nanos), 0), coalesce(sum(s.cost_held_nanos), 0), 0)
    INTO tokens_used, cost_used_nanos
    FROM quota_department_slots s
    WHERE s.department_id = p_department AND s.environment = p_environment AND s.month = p_month;

    SELECT b.monthly_tokens, b.monthly_cost_cents, b.warn_pct, b.downgrade_pct, b.protect_pct,
           b.downgrade_from, b.downgrade_model, b.allowed_models
    INTO base_tokens, base_cost_cents, warn_pct, downgrade_pct, protect_pct,
         downgrade_from, downgrade_model, allowed_models
    FROM department_budgets b
    WHERE b.department_id = p_department AND b.environment = p_environment;

    SELECT coalesce(sum(t.tokens) FILTER (WHERE t.valid_from <= p_now AND p_now < t.expires_at), 0),
           coalesce(sum(t.cost_cents) FILTER (WHERE t.valid_from <= p_now AND p_now < t.expires_at), 0),
           coalesce(max(greatest(CASE WHEN t.valid_from <= p_now THEN t.valid_from END,
                                 CASE WHEN t.expires_at <= p_now THEN t.expires_at END)), '-infinity'),
           coalesce(min(least(CASE WHEN t.valid_from > p_now THEN t.valid_from END,
                              CASE WHEN t.expires_at > p_now THEN t.expires_at END)), 'infinity')
    INTO v_topup_tokens, v_topup_cents, valid_from, valid_until
    FROM quota_topups t
    WHERE t.department_id = p_department AND t.environment = p_environment;

    budget_tokens := base_tokens + v_topup_tokens;
    budget_cost_nanos := (base_cost_cents + v_topup_cents) * 10000000;
    tier := CASE
        WHEN quota_reached(tokens_used, budget_tokens, cost_used_nanos, budget_cost_nanos, 100) THEN 4
        WHEN quota_reached(tokens_used, budget_tokens, cost_used_nanos, budget_cost_nanos, protect_pct) THEN 3
        WHEN quota_reached(tokens_used, budget_tokens, cost_used_nanos, budget_cost_nanos, downgrade_pct) THEN 2
        WHEN quota_reached(tokens_used, budget_tokens, cost_used_nanos, budget_cost_nanos, warn_pct) THEN 1
        ELSE 0 END;
END $$;

-- used >= pct % of the budget, in tokens or in cost; a NULL budget is never reached.
CREATE OR REPLACE FUNCTION quota_reached(
    p_tokens numeric, p_budget_tokens numeric, p_cost_nanos numeric, p_budget_cost_nanos numeric, p_pct int
) RETURNS boolean
LANGUAGE sql IMMUTABLE
AS $$ SELECT coalesce(p_tokens * 100 >= p_budget_tokens * p_pct, false)
          OR coalesce(p_cost_nanos * 100 >= p_budget_cost_nanos * p_pct, false) $$;

-- Locks all slots of a month, in order, making those first that are not there: all of a new month, or such as somebody
-- deleted. Those who lock all queue at one advisory lock, which serves them in turn: at a row that each of them updates,
-- late comers overtake early ones, and these ran into the lock timeout. Whoever books within a band never waits for it.
CREATE OR REPLACE FUNCTION quota_department_lock(p_department text, p_environment text, p_month date) RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_slots int;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended(concat_ws(chr(31), p_department, p_environment, p_month), 3));
    PERFORM FROM quota_department_slots s
    WHERE s.department_id = p_department AND s.environment = p_environment AND s.month = p_month
    ORDER BY s.slot FOR UPDATE;
    GET DIAGNOSTICS v_slots = ROW_COUNT;
    IF v_slots < 16 THEN
        INSERT INTO quota_department_slots (department_id, environment, month, slot)
        SELECT p_department, p_environment, p_month, i FROM generate_series(0, 15) i ORDER BY i
        ON CONFLICT DO NOTHING;
        PERFORM FROM quota_department_slots s
        WHERE s.department_id = p_department AND s.environment = p_environment AND s.month = p_month
        ORDER BY s.slot FOR UPDATE;
    END IF;
END $$;

-- Draws new bands; the caller has all slots locked. Up: each slot gets a sixteenth of the room below the next line, down
-- of what lies above the last one, of tokens and of cost each by its own lines: so within the bands no tier changes, and
-- whatever passes a line comes here. While the department is blocked no slot has room: whoever was about to book one alone
-- comes to judge with all of them locked, and sees the block.
-- p_tokens, p_cost_nanos: what the caller has just charged; if that passed a line, it is told at once.
CREATE OR REPLACE FUNCTION quota_department_band(
    p_department text, p_environment text, p_month date, p_now timestamptz,
    p_tokens bigint DEFAULT 0, p_cost_nanos bigint DEFAULT 0
) RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    d         record;
    v_pcts    int[];
    v_up_t    numeric;
    v_up_c    numeric;
    v_down_t  numeric;
    v_down_c  numeric;
    v_blocked boolean := quota_department_blocked(p_department, p_now);
    c_far     CONSTANT numeric := 4000000000000000000;
BEGIN
    SELECT * INTO d FROM quota_department_standing(p_department, p_environment, p_month, p_now);
    v_pcts := ARRAY[d.warn_pct, d.downgrade_pct, d.protect_pct, 100];
    SELECT min(p) FILTER (WHERE d.tokens_used * 100 < d.budget_tokens * p),
           min(p) FILTER (WHERE d.cost_used_nanos * 100 < d.budget_cost_nanos * p),
           max(p) FILTER (WHERE d.tokens_used * 100 >= d.budget_tokens * p),
           max(p) FILTER (WHERE d.cost_used_nanos * 100 >= d.budget_cost_nanos * p)
    INTO v_up_t, v_up_c, v_down_t, v_down_c
    FROM unnest(v_pcts) p;
    v_up_t := coalesce(floor((ceil(d.budget_tokens * v_up_t / 100) - 1 - d.tokens_used) / 16), c_far);
    v_up_c := coalesce(floor((ceil(d.budget_cost_nanos * v_up_c / 100) - 1 - d.cost_used_nanos) / 16), c_far);
    v_down_t := floor((d.tokens_used - ceil(d.budget_tokens * v_down_t / 100)) / 16);
    v_down_c := floor((d.cost_used_nanos - ceil(d.budget_cost_nanos * v_down_c / 100)) / 16);
    UPDATE quota_department_slots s SET
        band_tier               = d.tier,
        band_from               = d.valid_from,
        band_until              = d.valid_until,
        tokens_ceiling          = CASE WHEN v_blocked THEN -c_far ELSE least(s.tokens_used + v_up_t, c_far) END,
        cost_ceiling_nanos      = CASE WHEN v_blocked THEN -c_far ELSE least(s.cost_used_nanos + v_up_c, c_far) END,
        tokens_floor            = greatest(coalesce(s.tokens_used - v_down_t, -c_far), -c_far),
        cost_floor_nanos        = greatest(coalesce(s.cost_used_nanos - v_down_c, -c_far), -c_far),
        short                   = d.tier <= 1 AND d.allowed_models IS NULL AND NOT v_blocked,
        budget_ctid             = b.ctid,
        budget_xmin             = b.xmin
    FROM (SELECT) one LEFT JOIN department_budgets b
      ON b.department_id = p_department AND b.environment = p_environment
    WHERE s.department_id = p_department AND s.environment = p_environment AND s.month = p_month;

    IF (p_tokens > 0 OR p_cost_nanos > 0)
       AND EXISTS (SELECT FROM unnest(v_pcts) p
                   WHERE quota_line_passed(d.tokens_used, p_tokens, d.budget_tokens, p)
                      OR quota_line_passed(d.cost_used_nanos, p_cost_nanos, d.budget_cost_nanos, p)) THEN
        PERFORM quota_crossing_tell('department');
    END IF;
END $$;

-- Books an admission in tier p_tier into a slot, if its band allows; false: nothing changed, nothing held.
CREATE OR REPLACE FUNCTION quota_slot_admit(
    p_department text, p_environment text, p_month date, p_slot smallint, p_tier smallint, p_now timestamptz,
    p_tokens bigint, p_cost_nanos bigint, p_hold boolean
) RETURNS boolean
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
    UPDATE quota_department_slots s SET
        tokens_used     = s.tokens_used + p_tokens,
        cost_used_nanos = s.cost_used_nanos + p_cost_nanos,
        tokens_held     = s.tokens_held + CASE WHEN p_hold THEN p_tokens ELSE 0 END,
        cost_held_nanos = s.cost_held_nanos + CASE WHEN p_hold THEN p_cost_nanos ELSE 0 END
    FROM (SELECT) one LEFT JOIN department_budgets b
      ON b.department_id = p_department AND b.environment = p_environment
    WHERE s.department_id = p_department AND s.environment = p_environment AND s.month = p_month
      AND s.slot = p_slot AND s.band_tier = p_tier AND s.band_from <= p_now AND p_now < s.band_until
      AND s.tokens_used + p_tokens <= s.tokens_ceiling
      AND s.cost_used_nanos + p_cost_nanos <= s.cost_ceiling_nanos
      AND s.budget_ctid IS NOT DISTINCT FROM b.ctid AND s.budget_xmin IS NOT DISTINCT FROM b.xmin;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'QW000', MESSAGE = 'outside the band';
    END IF;
    RETURN true;
EXCEPTION WHEN SQLSTATE 'QW000' THEN
    RETURN false;
END $$;

-- Books what is true anyway (an end, a correction, an observed or legacy charge), in the band or not.
CREATE OR REPLACE FUNCTION quota_department_book(
    p_department text, p_environment text, p_month date, p_now timestamptz,
    p_tokens bigint, p_cost_nanos bigint, p_held_tokens bigint, p_held_cost_nanos bigint
) RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_slot smallint := pg_backend_pid() & 15;
BEGIN
    BEGIN
        UPDATE quota_department_slots s SET
            tokens_used     = s.tokens_used + p_tokens,
            cost_used_nanos = s.cost_used_nanos + p_cost_nanos,
            tokens_held     = s.tokens_held + p_held_tokens,
            cost_held_nanos = s.cost_held_nanos + p_held_cost_nanos
        WHERE s.department_id = p_department AND s.environment = p_environment AND s.month = p_month
          AND s.slot = v_slot
          AND s.tokens_used BETWEEN -4000000000000000000 AND 4000000000000000000
          AND s.cost_used_nanos BETWEEN -4000000000000000000 AND 4000000000000000000
          AND s.tokens_held BETWEEN -4000000000000000000 AND 4000000000000000000
          AND s.cost_held_nanos BETWEEN -4000000000000000000 AND 4000000000000000000
          AND s.tokens_used + p_tokens BETWEEN s.tokens_floor AND s.tokens_ceiling
          AND s.cost_used_nanos + p_cost_nanos BETWEEN s.cost_floor_nanos AND s.cost_ceiling_nanos;
        IF FOUND THEN
            RETURN;
        END IF;
        RAISE EXCEPTION USING ERRCODE = 'QW000', MESSAGE = 'outside the band';
    EXCEPTION WHEN SQLSTATE 'QW000' THEN
        NULL;
    END;
    PERFORM quota_department_lock(p_department, p_environment, p_month);
    -- what is true is booked as far as a counter goes: a legacy program may have written any bigint
    UPDATE quota_department_slots s SET
        tokens_used       = quota_clamp(s.tokens_used::numeric + p_tokens),
        cost_used_nanos   = quota_clamp(s.cost_used_nanos::numeric + p_cost_nanos),
        tokens_held       = quota_clamp(s.tokens_held::numeric + p_held_tokens),
        cost_held_nanos   = quota_clamp(s.cost_held_nanos::numeric + p_held_cost_nanos),
        -- what doesn't fit is taken from legacy charges, so that used = requests + legacy stays true
        legacy_tokens     = quota_clamp(s.legacy_tokens - (s.tokens_used::numeric + p_tokens)
                                        + quota_clamp(s.tokens_used::numeric + p_tokens)),
        legacy_cost_nanos = quota_clamp(s.legacy_cost_nanos - (s.cost_used_nanos::numeric + p_cost_nanos)
                                        + quota_clamp(s.cost_used_nanos::numeric + p_cost_nanos))
    WHERE s.department_id = p_department AND s.environment = p_environment AND s.month = p_month AND s.slot = v_slot;
    PERFORM quota_department_band(p_department, p_environment, p_month, p_now, p_tokens, p_cost_nanos);
END $$;

-- Books an admission; the caller has all slots locked. SQLSTATE QW002 where the counter would overflow.
CREATE OR REPLACE FUNCTION quota_slot_add(
    p_department text, p_environment text, p_month date, p_slot smallint,
    p_tokens bigint, p_cost_nanos bigint, p_held_tokens bigint, p_held_cost_nanos bigint
) RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
    UPDATE quota_department_slots s SET
        tokens_used     = s.tokens_used + p_tokens,
        cost_used_nanos = s.cost_used_nanos + p_cost_nanos,
        tokens_held     = s.tokens_held + p_held_tokens,
        cost_held_nanos = s.cost_held_nanos + p_held_cost_nanos
    WHERE s.department_id = p_department AND s.environment = p_environment AND s.month = p_month AND s.slot = p_slot
      AND s.tokens_used::numeric + p_tokens <= 9223372036854775807
      AND s.cost_used_nanos::numeric + p_cost_nanos <= 9223372036854775807;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'QW002', MESSAGE = 'the amounts would overflow a counter of the department''s month';
    END IF;
END $$;

-- Books one booking, if it has a department.
CREATE OR REPLACE FUNCTION quota_booking_book(p_booking quota_booking, p_now timestamptz) RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
    IF p_booking.department_id IS NOT NULL THEN
        PERFORM quota_department_book(p_booking.department_id, p_booking.environment, p_booking.month, p_now,
                                      p_booking.tokens, p_booking.cost_nanos, p_booking.held_tokens,
                                      p_booking.held_cost_nanos);
    END IF;
END $$;

-- Books many: each department's month once, in order, so that two who do so never wait for each other in a ring.
-- p_legacy: they are charges that no request has.
CREATE OR REPLACE FUNCTION quota_bookings_book(
    p_bookings quota_booking[], p_now timestamptz, p_legacy boolean DEFAULT false
) RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    d record;
BEGIN
    FOR d IN SELECT b.department_id, b.environment, b.month, quota_clamp(sum(b.tokens)) AS t,
                    quota_clamp(sum(b.cost_nanos)) AS c, quota_clamp(sum(b.held_tokens)) AS ht,
                    quota_clamp(sum(b.held_cost_nanos)) AS hc
             FROM unnest(p_bookings) b WHERE b.department_id IS NOT NULL
             GROUP BY 1, 2, 3 ORDER BY 1, 2, 3 LOOP
        IF (d.t, d.c, d.ht, d.hc) <> (0, 0, 0, 0) THEN
            PERFORM quota_department_book(d.department_id, d.environment, d.month, p_now, d.t, d.c, d.ht, d.hc);
            IF p_legacy THEN
                PERFORM quota_slot_legacy(d.department_id, d.environment, d.month, d.t, d.c);
            END IF;
        END IF;
    END LOOP;
END $$;

-- Notes that what this transaction has just booked in a department's month is a legacy charge. Apart from the
-- booking, so that requests, which are the rule, don't pay for it.
CREATE OR REPLACE FUNCTION quota_slot_legacy(
    p_department text, p_environment text, p_month date, p_tokens bigint, p_cost_nanos bigint
) RETURNS void
LANGUAGE sql VOLATILE
AS $$
    UPDATE quota_department_slots s SET
        legacy_tokens     = quota_clamp(s.legacy_tokens::numeric + p_tokens),
        legacy_cost_nanos = quota_clamp(s.legacy_cost_nanos::numeric + p_cost_nanos)
    WHERE s.department_id = p_department AND s.environment = p_environment AND s.month = p_month
      AND s.slot = (pg_backend_pid() & 15)::smallint
$$;

-- Within the range of a counter: a legacy program may write any bigint, and sums of such must not fail.
CREATE OR REPLACE FUNCTION quota_clamp(p_sum numeric) RETURNS bigint
LANGUAGE sql IMMUTABLE
AS $$ SELECT least(greatest(p_sum, -4000000000000000000), 4000000000000000000)::bigint $$;
