-- What the requests of a billing day are charged, open ones with their hold, by tenant, the department and
-- environment of their admission, model and app. As the calling statement sees them; takes no locks.
--
-- stale_*: charged by estimate or partial after they ran out, with no usage since. released: gave everything back.
-- Internal to quota_roll_month. Reads the day's block ranges, and no other day's.
CREATE OR REPLACE FUNCTION quota_roll_day(p_day date) RETURNS SETOF quota_day_parts
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    -- period says which day; the instants are for the block-range index. They have more to spare on either side than
    -- any two zones lie apart (26 hours): the billing zone may have been another one when the day was.
    v_from  timestamptz := quota_day_start(p_day - 1) - interval '3 hours';
    v_until timestamptz := quota_day_start(p_day + 2) + interval '3 hours';
BEGIN
    RETURN QUERY
    SELECT p_day, r.tenant_id, coalesce(r.department_id, ''), r.environment, coalesce(r.model, ''), coalesce(r.app, ''),
           (count(*) FILTER (WHERE r.completion_counted))::numeric,
           sum(CASE WHEN r.ended_at IS NULL THEN r.estimated_in_tokens ELSE r.charged_in_tokens END),
           coalesce(sum(r.cached_in_tokens) FILTER (WHERE r.ended_at IS NOT NULL), 0),
           sum(CASE WHEN r.ended_at IS NULL THEN r.estimated_out_tokens ELSE r.charged_out_tokens END),
           sum(CASE WHEN r.ended_at IS NULL THEN r.estimated_cost_nanos ELSE r.charged_cost_nanos END),
           count(*) FILTER (WHERE r.state = 'expired' AND NOT r.late
                              AND r.charged_cost_nanos + r.charged_in_tokens + r.charged_out_tokens > 0),
           coalesce(sum(r.charged_cost_nanos) FILTER (WHERE r.state = 'expired' AND NOT r.late), 0),
           count(*) FILTER (WHERE r.ended_at IS NOT NULL AND NOT r.completion_counted),
           count(*) FILTER (WHERE r.unpriced),
           count(*) FILTER (WHERE r.answered_model <> r.requested_model),
           coalesce(sum(CASE WHEN r.ended_at IS NULL THEN r.estimated_in_tokens::numeric + r.estimated_out_tokens
                             ELSE r.charged_in_tokens::numeric + r.charged_out_tokens END)
                    FILTER (WHERE r.answered_model <> r.requested_model), 0)
      FROM quota_reservations r
     WHERE r.period = p_day AND r.admitted_at >= v_from AND r.admitted_at < v_until
     GROUP BY r.tenant_id, coalesce(r.department_id, ''), r.environment, coalesce(r.model, ''), coalesce(r.app, '');
END $$;
