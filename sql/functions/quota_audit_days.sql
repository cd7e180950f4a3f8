-- The tenants' days in [p_from, p_until) whose counters don't agree with the requests, with both: what the row
-- says, and what the requests say. p_tenants: of these tenants only; NULL: of all. p_span: quota_audit_span. Internal.
-- _c completions, _i input tokens, _o output tokens, _n cost in nanos. used_, booked_, legacy_, held_: the row's.
-- charged_: what ended requests were charged and open ones hold; holds_: the latter part.
-- Right is: used = booked = charged + legacy, held = holds, and no counter below zero.
CREATE OR REPLACE FUNCTION quota_audit_days(p_from date, p_until date, p_tenants text[], p_span tstzrange)
RETURNS TABLE (
    tenant_id text, period date, is_there boolean, requests bigint,
    used_c numeric, used_i numeric, used_o numeric, used_n numeric,
    booked_c numeric, booked_i numeric, booked_o numeric, booked_n numeric,
    legacy_c numeric, legacy_i numeric, legacy_o numeric, legacy_n numeric,
    held_i numeric, held_o numeric, held_n numeric,
    charged_c numeric, charged_i numeric, charged_o numeric, charged_n numeric,
    holds_i numeric, holds_o numeric, holds_n numeric
)
LANGUAGE sql STABLE
AS $$
    SELECT d.* FROM (
        SELECT coalesce(u.tenant_id, s.tenant_id), coalesce(u.period, s.period), u.tenant_id IS NOT NULL AS is_there,
               coalesce(s.requests, 0),
               coalesce(u.completions, 0)::numeric AS used_c, coalesce(u.input_tokens, 0)::numeric AS used_i,
               coalesce(u.output_tokens, 0)::numeric AS used_o,
               coalesce(u.cost_cents, 0)::numeric * 10000000 + coalesce(u.cost_subcent_nanos, 0) AS used_n,
               coalesce(u.booked_completions, 0)::numeric AS booked_c, coalesce(u.booked_input_tokens, 0)::numeric AS booked_i,
               coalesce(u.booked_output_tokens, 0)::numeric AS booked_o, coalesce(u.booked_cost_nanos, 0)::numeric AS booked_n,
               coalesce(u.legacy_completions, 0)::numeric AS legacy_c, coalesce(u.legacy_input_tokens, 0)::numeric AS legacy_i,
               coalesce(u.legacy_output_tokens, 0)::numeric AS legacy_o, coalesce(u.legacy_cost_nanos, 0)::numeric AS legacy_n,
               coalesce(u.held_input_tokens, 0)::numeric AS held_i, coalesce(u.held_output_tokens, 0)::numeric AS held_o,
               coalesce(u.held_cost_nanos, 0)::numeric AS held_n,
               coalesce(s.c, 0)::numeric AS charged_c, coalesce(s.i, 0) AS charged_i, coalesce(s.o, 0) AS charged_o,
               coalesce(s.n, 0) AS charged_n,
               coalesce(s.hi, 0) AS holds_i, coalesce(s.ho, 0) AS holds_o, coalesce(s.hn, 0) AS holds_n
          FROM (SELECT r.tenant_id, r.period, count(*) AS requests,
                       count(*) FILTER (WHERE r.completion_counted) AS c,
                       sum(CASE WHEN r.state = 'open' THEN r.estimated_in_tokens ELSE r.charged_in_tokens END) AS i,
                       sum(CASE WHEN r.state = 'open' THEN r.estimated_out_tokens ELSE r.charged_out_tokens END) AS o,
                       sum(CASE WHEN r.state = 'open' THEN r.estimated_cost_nanos ELSE r.charged_cost_nanos END) AS n,
                       sum(r.estimated_in_tokens) FILTER (WHERE r.state = 'open') AS hi,
                       sum(r.estimated_out_tokens) FILTER (WHERE r.state = 'open') AS ho,
                       sum(r.estimated_cost_nanos) FILTER (WHERE r.state = 'open') AS hn
                  FROM quota_reservations r
                 WHERE r.period >= p_from AND r.period < p_until
                   -- implied by period; said for the block-range index
                   AND r.admitted_at >= lower(p_span) AND r.admitted_at < upper(p_span)
                   AND (p_tenants IS NULL OR r.tenant_id = ANY (p_tenants))
                 GROUP BY r.tenant_id, r.period) s
          FULL JOIN (SELECT q.* FROM quota_usage q
                      WHERE q.period >= p_from AND q.period < p_until
                        AND (p_tenants IS NULL OR q.tenant_id = ANY (p_tenants))) u
            ON u.tenant_id = s.tenant_id AND u.period = s.period
    ) AS d (tenant_id, period, is_there, requests)
     WHERE NOT d.is_there
        OR (d.used_c, d.used_i, d.used_o, d.used_n) <> (d.booked_c, d.booked_i, d.booked_o, d.booked_n)
        OR (d.booked_c, d.booked_i, d.booked_o, d.booked_n)
           <> (d.charged_c + d.legacy_c, d.charged_i + d.legacy_i, d.charged_o + d.legacy_o, d.charged_n + d.legacy_n)
        OR (d.held_i, d.held_o, d.held_n) <> (d.holds_i, d.holds_o, d.holds_n)
        OR least(d.used_c, d.used_i, d.used_o, d.used_n) < 0
$$;
