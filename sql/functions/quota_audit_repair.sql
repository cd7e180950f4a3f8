-- quota_audit_repair: mends what quota_audit calls a drift, in this transaction, and logs every mend in quota_repairs.
--
-- Of tenants the p_limit worst at most (1 to 1,000: their locks are held together); of departments all. Judged again
-- under the tenants' locks: what was right by then is left alone. A second call finds nothing to do.
--   requests      a row in an impossible state becomes the nearest possible one; known usage is charged again
--   counters      used, booked and held of a tenant's day become what its requests say, plus legacy charges. A direct
--                 write is kept as a legacy charge where the tenant has such (docs/adr/0010), else taken back
--   closed month  its frozen totals stay; the difference becomes an adjustment
--   departments   the slots' sums are moved by what they were off; new bands are drawn
-- Returns the mends. What it couldn't mend, since a direct write came between, the next audit shows.
-- Lock order: repairs take turns; tenants, a past month's row (shared), reservations, departments, each sorted.
-- SQLSTATEs: QW002 p_month as in quota_audit, bad limit; 55P03 lock wait over 2 s: nothing was done, retry.
CREATE OR REPLACE FUNCTION quota_audit_repair(
    p_month date DEFAULT NULL, p_limit int DEFAULT 1000, p_now timestamptz DEFAULT NULL
) RETURNS SETOF quota_repairs
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
SET jit = off
SET lock_timeout = '2s'
AS $$
DECLARE
    v_now      timestamptz := quota_now(p_now);
    v_month    date := quota_audit_month(p_month, v_now);
    v_span     tstzrange := quota_audit_span(v_month);
    v_open     date := quota_audit_open();
    v_closed   boolean := quota_audit_is_closed(v_month);
    v_run      uuid := gen_random_uuid();
    v_tenants  text[];
    v_rows     bigint;
    v_drifts   jsonb;
    v_legacy   jsonb;
    v_bookings quota_booking[];
BEGIN
    IF p_limit IS NULL OR p_limit NOT BETWEEN 1 AND 1000 THEN
        RAISE EXCEPTION USING ERRCODE = 'QW002', MESSAGE = 'quota_audit_repair: p_limit must be 1 to 1000';
    END IF;
    PERFORM pg_advisory_xact_lock(hashtextextended('quota_audit_repair', 2));
    v_tenants := ARRAY(
        SELECT q.tenant_id
          FROM (SELECT c.tenant_id, abs(c.found - c.expected) AS off FROM quota_audit_counters(v_month, NULL, v_span) c
                UNION ALL SELECT i.tenant_id, 0
                  FROM quota_audit_impossible(v_month, v_open, v_closed) i
                UNION ALL SELECT k.tenant_id, abs(k.found - k.expected) FROM quota_audit_closed(v_month, NULL) k) q
         GROUP BY q.tenant_id ORDER BY sum(q.off) DESC, q.tenant_id LIMIT p_limit);
    -- Before any lock, as it reads the month: every function changes requests and slots alike, so that how far a
    -- department's month is off stays as it is measured here.
    SELECT jsonb_agg(to_jsonb(d)) INTO v_drifts FROM quota_audit_departments(v_month, v_span) d;
    -- the same of how far what is noted as legacy charges on the two sides differs
    SELECT jsonb_agg(to_jsonb(g)) INTO v_legacy FROM quota_audit_legacy_off(v_month) g WHERE v_tenants <> '{}';
    PERFORM quota_lock_tenants(v_tenants);
    v_now := quota_now(p_now);

    v_rows := quota_audit_mend_requests(v_month, v_tenants, v_run, v_now);
    v_bookings := quota_audit_mend_days(v_month, v_tenants, v_legacy, v_run, v_now);
    PERFORM quota_audit_mend_closed(v_month, v_tenants, v_run, v_now);
    IF v_rows > 0 THEN      -- but for what was changed here
        SELECT jsonb_agg(to_jsonb(d)) INTO v_drifts FROM quota_audit_departments(v_month, v_span) d;
    END IF;
    PERFORM quota_audit_mend_departments(v_month, v_drifts, v_bookings, v_run, v_now);

    RETURN QUERY SELECT q.* FROM quota_repairs q WHERE q.run = v_run ORDER BY q.repair_id;
END $$;

-- Requests in an impossible state, or with a wrong charge. The caller holds the tenants' locks. Returns how many.
--
-- What has usage is charged its latest usage. Without, it stays ended as it ended, and charged as that end says; it is
-- open again where nothing says that it ended, unless its month is closed: then it ends by its estimate.
CREATE OR REPLACE FUNCTION quota_audit_mend_requests(p_month date, p_tenants text[], p_run uuid, p_now timestamptz) RETURNS bigint
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_rows bigint;
    v_noted bigint;
    v_open date;
    v_closed boolean;
BEGIN
    IF p_tenants = '{}' THEN
        RETURN 0;
    END IF;
    IF p_month < quota_month(quota_day(p_now)) THEN       -- nobody closes it meanwhile
        PERFORM FROM quota_months m WHERE m.month = p_month FOR SHARE;
    END IF;
    v_closed := quota_audit_is_closed(p_month);
    v_open := quota_audit_open();
    WITH wrong AS MATERIALIZED (
        SELECT i.* FROM quota_audit_impossible(p_month, v_open, v_closed) i WHERE i.tenant_id = ANY (p_tenants)
    ), seen AS (
        SELECT w.kind, w.cause, r, r.usage_in_tokens IS NOT NULL AND r.usage_out_tokens IS NOT NULL AS known,
               CASE WHEN quota_audit_astray(r, v_open) THEN quota_audit_home(r) ELSE r.period END AS home,
               quota_audit_astray(r, v_open) AND quota_audit_home(r) <> quota_day(r.admitted_at) AS misdated,
               r.stale_policy IN ('estimate', 'partial', 'release') AS by_policy,
               greatest(r.estimated_in_tokens, 0) AS est_i, greatest(r.estimated_out_tokens, 0) AS est_o,
               greatest(r.estimated_cost_nanos, 0) AS est_n,
               -- usage or charges below zero tell nothing
               CASE WHEN r.charged_in_tokens >= 0 THEN r.charged_in_tokens END AS was_i,
               CASE WHEN r.charged_out_tokens >= 0 THEN r.charged_out_tokens END AS was_o,
               CASE WHEN r.charged_cost_nanos >= 0 THEN r.charged_cost_nanos END AS was_n,
               CASE WHEN r.usage_in_tokens >= 0 THEN r.usage_in_tokens END AS use_i,
               CASE WHEN r.usage_out_tokens >= 0 THEN r.usage_out_tokens END AS use_o,
               CASE WHEN r.usage_cost_nanos >= 0 THEN r.usage_cost_nanos END AS use_n
          FROM wrong w JOIN quota_reservations r ON r.tenant_id = w.tenant_id AND r.request_id = w.request_id
    ), ends AS (
        SELECT s.*,
               CASE WHEN (s.r).state IN ('settled', 'released', 'expired') THEN (s.r).state
                    WHEN s.known THEN 'settled'
                    WHEN num_nulls((s.r).charged_in_tokens, (s.r).charged_out_tokens, (s.r).charged_cost_nanos) = 0 THEN
                         CASE WHEN s.by_policy THEN 'expired'
                              WHEN (s.was_i, s.was_o, s.was_n) = (s.est_i, s.est_o, s.est_n) THEN 'settled'
                              ELSE 'released' END
                    WHEN quota_audit_is_closed(quota_month(s.home)) THEN 'settled'
                    ELSE 'open' END AS state,
               CASE WHEN s.by_policy THEN (s.r).stale_policy ELSE 'estimate' END AS policy,
               coalesce(s.use_i, s.was_i, s.est_i) AS i, coalesce(s.use_o, s.was_o, s.est_o) AS o,
               coalesce(s.use_n, s.was_n, CASE WHEN s.known THEN quota_price((s.r).model, s.use_i, (s.r).cached_in_tokens, s.use_o,
                                                                             (s.r).admitted_at) END) AS n
          FROM seen s
    ), judged AS MATERIALIZED (
        SELECT e.*,
               CASE WHEN e.state = 'open' THEN NULL
                    WHEN e.known THEN e.i
                    WHEN e.state = 'expired' AND e.policy = 'release' THEN 0
                    WHEN e.state = 'released' THEN coalesce(e.was_i, CASE WHEN (e.r).completion_counted THEN e.est_i ELSE 0 END)
                    ELSE e.est_i END AS now_i,
               CASE WHEN e.state = 'open' THEN NULL
                    WHEN e.known THEN e.o
                    WHEN e.state = 'expired' AND e.policy = 'release' THEN 0
                    WHEN e.state = 'expired' AND e.policy = 'partial' THEN (e.r).progress_out_tokens
                    WHEN e.state = 'released' THEN coalesce(e.was_o, CASE WHEN (e.r).completion_counted THEN e.est_o ELSE 0 END)
                    ELSE e.est_o END AS now_o,
               CASE WHEN e.state = 'open' THEN NULL
                    WHEN e.known THEN coalesce(e.n, CASE WHEN (e.r).unreserved THEN 0
                                                         ELSE quota_cost_share(e.est_n, e.i::numeric + e.o, e.est_i::numeric + e.est_o) END)
                    WHEN e.state = 'expired' AND e.policy = 'release' THEN 0
                    WHEN e.state = 'expired' AND e.policy = 'partial' THEN
                         quota_cost_share(e.est_n, e.est_i::numeric + (e.r).progress_out_tokens, e.est_i::numeric + e.est_o)
                    WHEN e.state = 'released' THEN coalesce(e.was_n, CASE WHEN (e.r).completion_counted THEN e.est_n ELSE 0 END)
                    ELSE e.est_n END AS now_n,
               e.known AND e.n IS NULL AND NOT (e.r).unpriced AS unknown_cost,
               -- a request was admitted its time to live before its expiry
               CASE WHEN NOT e.misdated THEN (e.r).admitted_at
                    WHEN quota_day((e.r).expires_at - (e.r).ttl_seconds * interval '1 second') = e.home
                        THEN (e.r).expires_at - (e.r).ttl_seconds * interval '1 second'
                    ELSE quota_day_start(e.home) END AS admitted_at
          FROM ends e
    ), mended AS (
        UPDATE quota_reservations r SET
            state                = j.state,
            period               = j.home,
            admitted_at          = j.admitted_at,
            estimated_in_tokens  = j.est_i,
            estimated_out_tokens = j.est_o,
            estimated_cost_nanos = j.est_n,
            charged_in_tokens    = j.now_i,
            charged_out_tokens   = j.now_o,
            charged_cost_nanos   = j.now_n,
            usage_in_tokens      = CASE WHEN j.known THEN j.now_i END,
            usage_out_tokens     = CASE WHEN j.known THEN j.now_o END,
            usage_cost_nanos     = CASE WHEN j.known THEN j.use_n END,
            usage_missing        = NOT j.known AND (r.usage_missing OR j.state IN ('settled', 'expired')),
            unpriced             = r.unpriced OR j.unknown_cost,
            completion_counted   = j.known OR CASE j.state WHEN 'released' THEN r.completion_counted
                                                           WHEN 'expired' THEN j.policy <> 'release' ELSE true END,
            ended_at             = CASE WHEN j.state <> 'open'
                                        THEN coalesce(r.ended_at, r.updated_at, least(r.expires_at, p_now)) END,
            expires_at           = least(r.expires_at, j.admitted_at + interval '24 hours'),
            stale_policy         = CASE WHEN j.state = 'expired' THEN j.policy ELSE r.stale_policy END
        FROM judged j
        WHERE r.tenant_id = (j.r).tenant_id AND r.request_id = (j.r).request_id
        RETURNING r.tenant_id, r.request_id, r.department_id, r.environment, (j.r).period, j.kind, r.model, r.admitted_at,
                  r.usage_in_tokens, j.unknown_cost,
                  j.cause || CASE WHEN r.state = 'open' THEN '; now it is open'
                                  ELSE format('; now it is %s and charged %s input and %s output tokens and %s nanos', r.state,
                                              r.charged_in_tokens, r.charged_out_tokens, r.charged_cost_nanos) END AS cause
    ), logged AS (
        INSERT INTO quota_repairs (run, repaired_at, month, kind, tenant_id, department_id, environment, period, dimension,
                                   request_id, cause)
        SELECT p_run, p_now, p_month, m.kind, m.tenant_id, m.department_id, m.environment, m.period, 'request',
               m.request_id, m.cause
          FROM mended m ORDER BY m.tenant_id, m.request_id
        RETURNING 1
    )
    SELECT (SELECT count(*) FROM logged),
           (SELECT count(quota_unpriced_note(m.tenant_id, m.request_id, m.model, m.usage_in_tokens, m.admitted_at, p_now))
              FROM mended m WHERE m.unknown_cost)
      INTO v_rows, v_noted;
    RETURN v_rows;
END $$;

-- Days. The caller holds the tenants' locks. Returns by how much legacy charges changed, for the departments. p_legacy:
-- rows of quota_audit_legacy_off: legacy charges that there never were are taken from a department only where it has them.
CREATE OR REPLACE FUNCTION quota_audit_mend_days(p_month date, p_tenants text[], p_legacy jsonb, p_run uuid, p_now timestamptz)
RETURNS quota_booking[]
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_bookings quota_booking[];
    v_span     tstzrange := quota_audit_span(p_month);
    -- a day of an open month that isn't p_now's: its closing may not see the mend, as with any correction
    v_note     boolean := p_month <> quota_month(quota_day(p_now))
                          AND NOT EXISTS (SELECT FROM quota_months m WHERE m.month = p_month AND m.closed_at IS NOT NULL);
BEGIN
    IF p_tenants = '{}' THEN
        RETURN '{}';
    END IF;
    WITH judged AS MATERIALIZED (
        SELECT c.* FROM quota_audit_counters(p_month, p_tenants, v_span) c
    ), days AS MATERIALIZED (
        SELECT j.tenant_id, j.period, bool_or(j.kind = 'orphan') AS orphan,
               max(j.target) FILTER (WHERE j.dimension = 'completions') AS c,
               max(j.target) FILTER (WHERE j.dimension = 'input_tokens') AS i,
               max(j.target) FILTER (WHERE j.dimension = 'output_tokens') AS o,
               max(j.target) FILTER (WHERE j.dimension = 'cost_nanos') AS n,
               max(j.target - j.charged) FILTER (WHERE j.dimension = 'completions') AS lc,
               max(j.target - j.charged) FILTER (WHERE j.dimension = 'input_tokens') AS li,
               max(j.target - j.charged) FILTER (WHERE j.dimension = 'output_tokens') AS lo,
               max(j.target - j.charged) FILTER (WHERE j.dimension = 'cost_nanos') AS ln,
               max(j.holds) FILTER (WHERE j.dimension = 'input_tokens') AS hi,
               max(j.holds) FILTER (WHERE j.dimension = 'output_tokens') AS ho,
               max(j.holds) FILTER (WHERE j.dimension = 'cost_nanos') AS hn,
               -- where used is right, what goes of legacy charges was a wrong note
               coalesce(bool_or(j.kind = 'booked') FILTER (WHERE j.dimension IN ('input_tokens', 'output_tokens')), false) AS ghost_t,
               coalesce(bool_or(j.kind = 'booked') FILTER (WHERE j.dimension = 'cost_nanos'), false) AS ghost_n
          FROM judged j GROUP BY j.tenant_id, j.period
    ), made AS (
        INSERT INTO quota_usage AS u (
            tenant_id, period, completions, input_tokens, output_tokens, cost_cents, cost_subcent_nanos,
            held_input_tokens, held_output_tokens, held_cost_nanos,
            booked_completions, booked_input_tokens, booked_output_tokens, booked_cost_nanos)
        SELECT d.tenant_id, d.period, coalesce(d.c, 0), coalesce(d.i, 0), coalesce(d.o, 0),
               div(coalesce(d.n, 0), 10000000), mod(coalesce(d.n, 0), 10000000),
               coalesce(d.hi, 0), coalesce(d.ho, 0), coalesce(d.hn, 0),
               coalesce(d.c, 0), coalesce(d.i, 0), coalesce(d.o, 0), coalesce(d.n, 0)
          FROM days d WHERE d.orphan ORDER BY d.tenant_id, d.period
        ON CONFLICT DO NOTHING
        RETURNING u.tenant_id, u.period, u.booked_completions::numeric AS bc, u.booked_input_tokens::numeric AS bi,
                  u.booked_output_tokens::numeric AS bo, u.booked_cost_nanos::numeric AS bn,
                  0::numeric AS li, 0::numeric AS lo, 0::numeric AS ln, false AS drops_i, false AS drops_o, false AS drops_n,
                  false AS ghost_t, false AS ghost_n
    ), changed AS (
        UPDATE quota_usage u SET
            completions          = coalesce(d.c, u.completions),
            input_tokens         = coalesce(d.i, u.input_tokens),
            output_tokens        = coalesce(d.o, u.output_tokens),
            cost_cents           = coalesce(div(d.n, 10000000), u.cost_cents),
            cost_subcent_nanos   = coalesce(mod(d.n, 10000000), u.cost_subcent_nanos),
            held_input_tokens    = coalesce(d.hi, u.held_input_tokens),
            held_output_tokens   = coalesce(d.ho, u.held_output_tokens),
            held_cost_nanos      = coalesce(d.hn, u.held_cost_nanos),
            booked_completions   = coalesce(d.c, u.booked_completions),
            booked_input_tokens  = coalesce(d.i, u.booked_input_tokens),
            booked_output_tokens = coalesce(d.o, u.booked_output_tokens),
            booked_cost_nanos    = coalesce(d.n, u.booked_cost_nanos),
            legacy_completions   = coalesce(d.lc, u.legacy_completions),
            legacy_input_tokens  = coalesce(d.li, u.legacy_input_tokens),
            legacy_output_tokens = coalesce(d.lo, u.legacy_output_tokens),
            legacy_cost_nanos    = coalesce(d.ln, u.legacy_cost_nanos)
        FROM days d JOIN quota_usage b ON b.tenant_id = d.tenant_id AND b.period = d.period
        WHERE u.tenant_id = d.tenant_id AND u.period = d.period AND NOT d.orphan
          -- a direct write that came since it was judged must not be lost: the day is left to the next audit
          AND u.ctid = b.ctid AND u.xmin = b.xmin
        RETURNING u.tenant_id, u.period, u.booked_completions::numeric - b.booked_completions AS bc,
                  u.booked_input_tokens::numeric - b.booked_input_tokens AS bi,
                  u.booked_output_tokens::numeric - b.booked_output_tokens AS bo,
                  u.booked_cost_nanos::numeric - b.booked_cost_nanos AS bn,
                  u.legacy_input_tokens::numeric - b.legacy_input_tokens AS li,
                  u.legacy_output_tokens::numeric - b.legacy_output_tokens AS lo,
                  u.legacy_cost_nanos::numeric - b.legacy_cost_nanos AS ln,
                  abs(u.legacy_input_tokens::numeric) < abs(b.legacy_input_tokens::numeric) AS drops_i,
                  abs(u.legacy_output_tokens::numeric) < abs(b.legacy_output_tokens::numeric) AS drops_o,
                  abs(u.legacy_cost_nanos::numeric) < abs(b.legacy_cost_nanos::numeric) AS drops_n,
                  d.ghost_t, d.ghost_n
    ), split AS MATERIALIZED (
        -- dropped: legacy charges that were booked to some department before; kept: new ones, as reconcile books them
        SELECT q.*, CASE WHEN q.drops_i THEN q.li ELSE 0 END + CASE WHEN q.drops_o THEN q.lo ELSE 0 END AS dropped_t,
               CASE WHEN q.drops_n THEN q.ln ELSE 0 END AS dropped_n,
               CASE WHEN q.drops_i THEN 0 ELSE q.li END + CASE WHEN q.drops_o THEN 0 ELSE q.lo END AS kept_t,
               CASE WHEN q.drops_n THEN 0 ELSE q.ln END AS kept_n
          FROM (SELECT * FROM made UNION ALL SELECT * FROM changed) q
    ), short AS MATERIALIZED (
        -- of wrong notes: how much the tenant's departments lack of what their tenants' days noted, and so never had
        SELECT s.tenant_id, s.period,
               coalesce(g.t, 0) + CASE WHEN l.department_id IS NULL THEN s.dropped_t ELSE 0 END AS t,
               coalesce(g.n, 0) + CASE WHEN l.department_id IS NULL THEN s.dropped_n ELSE 0 END AS n,
               sum(s.dropped_t) FILTER (WHERE s.ghost_t) OVER wt AS sum_t, sum(s.dropped_n) FILTER (WHERE s.ghost_n) OVER wn AS sum_n
          FROM split s
          LEFT JOIN tenant_limits l ON l.tenant_id = s.tenant_id
          LEFT JOIN LATERAL (
               SELECT sum(x.t) AS t, sum(x.n) AS n
                 FROM jsonb_to_recordset(p_legacy) AS x (department_id text, environment text, t numeric, n numeric)
                WHERE (x.department_id, x.environment) = (l.department_id, l.environment)
                   OR EXISTS (SELECT FROM quota_reservations r
                               WHERE r.tenant_id = s.tenant_id AND r.department_id = x.department_id
                                 AND r.environment = x.environment AND r.period >= p_month
                                 AND r.period < (p_month + interval '1 month')::date)) g ON true
         WHERE s.ghost_t AND s.dropped_t <> 0 OR s.ghost_n AND s.dropped_n <> 0
        WINDOW wt AS (PARTITION BY l.department_id, l.environment, sign(s.dropped_t) ORDER BY s.tenant_id, s.period),
               wn AS (PARTITION BY l.department_id, l.environment, sign(s.dropped_n) ORDER BY s.tenant_id, s.period)
    ), placed AS MATERIALIZED (
        SELECT s.tenant_id, s.period, s.bc, s.bi, s.bo, s.bn, s.kept_t, s.kept_n,
               s.dropped_t - CASE WHEN s.ghost_t AND sign(h.t) = sign(s.dropped_t)
                                  THEN sign(h.t) * (least(abs(h.t), abs(h.sum_t))
                                                    - least(abs(h.t), abs(h.sum_t - s.dropped_t))) ELSE 0 END AS dropped_t,
               s.dropped_n - CASE WHEN s.ghost_n AND sign(h.n) = sign(s.dropped_n)
                                  THEN sign(h.n) * (least(abs(h.n), abs(h.sum_n))
                                                    - least(abs(h.n), abs(h.sum_n - s.dropped_n))) ELSE 0 END AS dropped_n
          FROM split s LEFT JOIN short h ON h.tenant_id = s.tenant_id AND h.period = s.period
    ), done AS MATERIALIZED (
        SELECT s.*, l.department_id AS present_department, l.environment AS present_environment,
               CASE WHEN k.keeps THEN l.department_id ELSE o.department_id END AS department_id,
               CASE WHEN k.keeps THEN l.environment ELSE o.environment END AS environment
          FROM placed s
          LEFT JOIN tenant_limits l ON l.tenant_id = s.tenant_id
         CROSS JOIN LATERAL (SELECT (s.dropped_t, s.dropped_n) = (0, 0) AND (s.kept_t, s.kept_n) <> (0, 0) AS keeps) k
          LEFT JOIN LATERAL quota_audit_owner(s.tenant_id, p_month, s.period, s.dropped_t, s.dropped_n) o ON true
    ), logged AS (
        INSERT INTO quota_repairs (run, repaired_at, month, kind, tenant_id, department_id, environment, period, dimension,
                                   expected, found, mended, request_id, cause)
        SELECT p_run, p_now, p_month, j.kind, j.tenant_id, d.department_id, d.environment, j.period, j.dimension,
               j.expected, j.found, CASE WHEN j.kind IN ('posted', 'direct_write') THEN j.target - j.holds ELSE j.expected END,
               j.request_id, j.cause
          FROM judged j JOIN done d ON d.tenant_id = j.tenant_id AND d.period = j.period
         ORDER BY j.tenant_id, j.period, j.kind, j.dimension
        RETURNING 1
    ), noted AS (
        SELECT count(quota_adjustment_note(d.tenant_id, NULL, d.department_id, d.environment, d.period,
                                           d.bc, d.bi, d.bo, d.bn, p_now)) AS notes
          FROM done d WHERE v_note
    )
    SELECT array_agg((b.department_id, b.environment, p_month, quota_clamp(b.t), quota_clamp(b.n), 0, 0)::quota_booking)
               FILTER (WHERE (b.t, b.n) <> (0, 0) AND b.department_id IS NOT NULL)
      INTO v_bookings
      FROM done d
     CROSS JOIN LATERAL (VALUES (d.department_id, d.environment, d.dropped_t, d.dropped_n),
                                (d.present_department, d.present_environment, d.kept_t, d.kept_n)
                        ) AS b (department_id, environment, t, n),
           noted n, (SELECT count(*) FROM logged) g;
    -- ceilings were drawn with the old sums in them: the tenants' next requests draw new ones
    UPDATE quota_usage u SET limits_ctid = NULL, limits_xmin = NULL
     WHERE u.tenant_id = ANY (p_tenants) AND u.period >= p_month AND u.period < (p_month + interval '1 month')::date
       AND u.limits_ctid IS NOT NULL;
    RETURN coalesce(v_bookings, '{}');
END $$;

-- Departments: p_bookings are changes of legacy charges, p_drifts how far the months were off before.
CREATE OR REPLACE FUNCTION quota_audit_mend_departments(
    p_month date, p_drifts jsonb, p_bookings quota_booking[], p_run uuid, p_now timestamptz
) RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    d record;
BEGIN
    -- all of them first, in order: booking one and then locking all slots of another could go round in a ring
    FOR d IN SELECT b.department_id, b.environment FROM unnest(p_bookings) b
             UNION SELECT q.department_id, q.environment
                     FROM jsonb_to_recordset(p_drifts) AS q (department_id text, environment text)
             -- slots that somebody deleted are made
             UNION SELECT s.department_id, s.environment FROM quota_department_slots s
                    WHERE s.month = p_month GROUP BY s.department_id, s.environment HAVING count(*) < 16
             ORDER BY 1, 2 LOOP
        PERFORM quota_department_lock(d.department_id, d.environment, p_month);
    END LOOP;
    PERFORM quota_bookings_book(p_bookings, p_now, true);
    FOR d IN SELECT q.department_id, q.environment,
                    coalesce(sum(q.expected - q.found) FILTER (WHERE q.dimension = 'tokens_used'), 0) AS t,
                    coalesce(sum(q.expected - q.found) FILTER (WHERE q.dimension = 'cost_used_nanos'), 0) AS n,
                    coalesce(sum(q.expected - q.found) FILTER (WHERE q.dimension = 'tokens_held'), 0) AS ht,
                    coalesce(sum(q.expected - q.found) FILTER (WHERE q.dimension = 'cost_held_nanos'), 0) AS hn
               FROM jsonb_to_recordset(p_drifts) AS q (department_id text, environment text, dimension text,
                                                       expected numeric, found numeric)
              GROUP BY 1, 2 ORDER BY 1, 2 LOOP
        UPDATE quota_department_slots s SET
            tokens_used     = quota_clamp(s.tokens_used + d.t),
            cost_used_nanos = quota_clamp(s.cost_used_nanos + d.n),
            tokens_held     = quota_clamp(s.tokens_held + d.ht),
            cost_held_nanos = quota_clamp(s.cost_held_nanos + d.hn)
         WHERE s.department_id = d.department_id AND s.environment = d.environment AND s.month = p_month AND s.slot = 0;
        PERFORM quota_department_band(d.department_id, d.environment, p_month, p_now);
    END LOOP;
    INSERT INTO quota_repairs (run, repaired_at, month, kind, department_id, environment, period, dimension,
                               expected, found, mended, request_id, cause)
    SELECT p_run, p_now, p_month, 'department', q.department_id, q.environment, p_month, q.dimension,
           q.expected, q.found, q.expected, q.request_id, q.cause
      FROM jsonb_to_recordset(p_drifts) AS q (department_id text, environment text, dimension text, expected numeric,
                                              found numeric, request_id text, cause text)
     ORDER BY q.department_id, q.environment, q.dimension;
END $$;
