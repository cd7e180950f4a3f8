-- One pass of the watch: caps that fall soon at the present pace, and apps and keys that run away, are told, in this
-- one transaction with the note that they were.
--
-- Out: burns (caps told), runaways (apps and keys told), messages (subjects told; each becomes one quota_outbox row per
-- channel and address, as quota_route says). A subject's caps share one message ('burn-rate'), a tenant's runaways
-- another ('runaway': the ten costliest are listed, all are counted). A cap of a day is told once in it, one of a
-- month again after 24 hours, an app or key again after 24 hours. With p_dry nothing is written: only counted.
-- p_limits: {"day_hours": 4, "month_hours": 24, "burn_times": 3, "burn_requests": 30, "usual_times": 10, "min_requests": 100};
-- what each means: quota_watch_burning, quota_watch_runaways. burn_requests may lack: an older program doesn't know it.
-- Idempotent: a second pass over the same state tells nothing. Safe beside itself: of two passes that find the same,
-- one writes its row of quota_watch_told, and only what was written here is told here.
-- Lock order: quota_watch_told, sorted; quota_outbox.
-- SQLSTATE: 55P03 when another pass holds a lock for 30 s (retry); 22023 without routes or limits.
CREATE OR REPLACE FUNCTION quota_watch(
    p_now timestamptz DEFAULT NULL, p_routes jsonb DEFAULT '{"default": {"to": [{"channel": "console"}]}}',
    p_limits jsonb DEFAULT '{"day_hours": 4, "month_hours": 24, "burn_times": 3, "burn_requests": 30, "usual_times": 10, "min_requests": 100}',
    p_limit int DEFAULT 1000, p_dry boolean DEFAULT false,
    OUT burns int, OUT runaways int, OUT messages int
) RETURNS record
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET lock_timeout = '30s'
SET jit = off
AS $$
DECLARE
    v_now     timestamptz := coalesce(p_now, clock_timestamp());
    v_burning jsonb;
    v_running jsonb;
BEGIN
    IF p_routes -> 'default' IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'quota_watch: p_routes needs a default';
    END IF;
    IF NOT p_limits ?& ARRAY['day_hours', 'month_hours', 'burn_times', 'usual_times', 'min_requests'] THEN
        RAISE EXCEPTION USING ERRCODE = '22023',
            MESSAGE = 'quota_watch: p_limits needs day_hours, month_hours, burn_times, usual_times and min_requests';
    END IF;
    messages := 0;
    -- found first, as values: a pass that finds nothing takes no transaction id, so that an idle tick stays idle
    SELECT count(*), jsonb_agg(to_jsonb(b) ORDER BY b.subject_kind, b.subject, b.environment, b.dimension, b.period_kind)
      INTO burns, v_burning
      FROM (SELECT f.* FROM quota_watch_burning(v_now, (p_limits ->> 'day_hours')::int, (p_limits ->> 'month_hours')::int,
                                                (p_limits ->> 'burn_times')::int,
                                                coalesce((p_limits ->> 'burn_requests')::int, 30)) f
             ORDER BY f.times_even DESC, f.subject_kind, f.subject, f.environment, f.dimension, f.period_kind
             LIMIT p_limit) b;
    SELECT count(*), jsonb_agg(to_jsonb(r) ORDER BY r.place)
      INTO runaways, v_running
      FROM (SELECT f.*
              FROM quota_watch_runaways(v_now, (p_limits ->> 'usual_times')::int, (p_limits ->> 'min_requests')::int)
                   WITH ORDINALITY AS f (tenant_id, environment, department_id, app, api_key, rule, figure, present, usual,
                                         requests, minutes, tokens, cost_nanos, recent, same, same_in_tokens,
                                         usual_minutes, end_users, models, place)
             LIMIT p_limit) r;
    IF p_dry THEN
        RETURN;
    END IF;
    IF burns > 0 THEN
        SELECT t.told, t.messages INTO burns, messages FROM quota_watch_tell_burns(v_burning, p_routes, v_now) t;
    END IF;
    IF runaways > 0 THEN
        SELECT t.told, quota_watch.messages + t.messages INTO runaways, messages
          FROM quota_watch_tell_runaways(v_running, p_routes, v_now) t;
    END IF;
END
$$;
