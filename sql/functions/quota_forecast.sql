-- When a cap is reached at the present pace: the one forecast of alerts, status and metrics.
--
-- p_pace: what the last hour brought, in the unit of p_used and p_cap. NULL without any in the last hour, when the cap
-- is reached already, when that is after p_ends_at (the period's end), or when that is past. Cut to the minute.
-- Pure; without settings of its own, so that callers inline it. Takes no locks; raises nothing.
CREATE OR REPLACE FUNCTION quota_forecast(
    p_used numeric, p_cap numeric, p_pace numeric, p_ends_at timestamptz, p_now timestamptz
) RETURNS timestamptz
LANGUAGE sql STABLE
AS $$
    SELECT CASE WHEN p_used < p_cap AND p_now < p_ends_at
                     AND (p_cap - p_used) / nullif(greatest(p_pace, 0), 0) * 3600
                         < date_part('epoch', p_ends_at - p_now)
                THEN date_trunc('minute', p_now + interval '1 hour'
                                                  * ((p_cap - p_used) / p_pace)::double precision) END
$$;
