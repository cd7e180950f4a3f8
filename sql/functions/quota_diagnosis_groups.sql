-- Requests without usage in the 24 hours before p_now, by model, app and API key: the groups that are to be told.
--
-- A group is told where more than p_missing_pct percent of at least p_min_requests requests brought none, and it was
-- not told lately (quota_diagnosis_due). The costliest first. Requests are those that ended, by the model that they
-- were admitted with (what the answer calls it is known of those with usage alone); without usage are those that
-- expired or were settled without figures, until figures come. Left out are releases, whose callers said what was
-- consumed, and usage that nobody reserved, which has no app and no key. tokens and cost_nanos: what those without
-- usage are charged instead; uncharged: how many of them are charged nothing. department_id: where all of the
-- group's requests are one department's. '' is a label that nobody gave.
-- Takes no locks; reads one day of reservations once, through the block-range index on admitted_at.
CREATE OR REPLACE FUNCTION quota_diagnosis_groups(p_now timestamptz, p_missing_pct int, p_min_requests int)
RETURNS TABLE (model text, app text, api_key text, requests bigint, missing bigint, uncharged bigint, tokens numeric,
               cost_nanos numeric, department_id text)
LANGUAGE sql STABLE
SET search_path FROM CURRENT
SET jit = off
AS $$
    WITH grouped AS MATERIALIZED (
        SELECT coalesce(r.answered_model, r.requested_model, '') AS model, coalesce(r.app, '') AS app,
               coalesce(r.api_key, '') AS api_key, count(*) AS requests,
               count(*) FILTER (WHERE r.usage_missing) AS missing,
               count(*) FILTER (WHERE r.usage_missing AND r.charged_in_tokens + r.charged_out_tokens = 0
                                      AND r.charged_cost_nanos = 0) AS uncharged,
               coalesce(sum(r.charged_in_tokens + r.charged_out_tokens) FILTER (WHERE r.usage_missing), 0) AS tokens,
               coalesce(sum(r.charged_cost_nanos) FILTER (WHERE r.usage_missing), 0) AS cost_nanos,
               CASE WHEN count(r.department_id) = count(*) AND min(r.department_id) = max(r.department_id)
                    THEN min(r.department_id) END AS department_id
          FROM quota_reservations r
         WHERE r.admitted_at > p_now - interval '24 hours' AND r.admitted_at <= p_now
           AND r.ended_at IS NOT NULL AND NOT r.unreserved AND (r.state <> 'released' OR r.usage_in_tokens IS NOT NULL)
         GROUP BY 1, 2, 3
        HAVING count(*) >= p_min_requests
           AND count(*) FILTER (WHERE r.usage_missing) * 100 > p_missing_pct * count(*)
    )
    SELECT g.model, g.app, g.api_key, g.requests, g.missing, g.uncharged, g.tokens, g.cost_nanos, g.department_id
      FROM grouped g
      LEFT JOIN quota_missing_told t ON t.model = g.model AND t.app = g.app AND t.api_key = g.api_key
     WHERE t.told_at IS NULL OR quota_diagnosis_due(t.told_at, t.requests, t.missing, g.requests, g.missing, p_now)
     ORDER BY g.cost_nanos DESC, g.tokens DESC, g.missing DESC, g.model, g.app, g.api_key
$$;

-- Whether a group that was told may be told again: after seven days, or when its share has at least doubled. What
-- was told by a clock that ran ahead counts as not told.
CREATE OR REPLACE FUNCTION quota_diagnosis_due(
    p_told_at timestamptz, p_told_requests bigint, p_told_missing bigint, p_requests bigint, p_missing bigint,
    p_now timestamptz
) RETURNS boolean
LANGUAGE sql STABLE
AS $$
    SELECT p_told_at <= p_now - interval '7 days' OR p_told_at > p_now + interval '10 minutes'
        OR p_missing::numeric * p_told_requests >= 2 * p_told_missing::numeric * p_requests
$$;
