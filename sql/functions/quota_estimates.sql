-- How far estimates lie from usage, of requests admitted after p_since, by model: as they were admitted, until p_until.
--
-- p_by: 'model', or 'app' or 'key': each model's by app or API key, in label. p_model: this one alone; NULL: all.
-- '' is a label that nobody gave. Which requests count, and which are without usage: as in quota_diagnosis_groups.
-- over_estimate: how many of those with usage used more input or output than was estimated.
-- Of input and output, from requests whose estimate isn't 0, where there are at least p_min_requests (else NULL):
--   factor    the sum of usage ÷ the sum of estimates: times this, the estimates' sum is the usage's. Left out are
--             requests whose own ratio lies more than 100 times off the median: one wrong figure would rule it.
--   median    of the requests' own ratios, to 1 %
--   outliers  how many were left out
-- p95_out_tokens: what 95 of 100 requests stayed within; as percentile_disc, NULL as above. mean_out_estimate: what
-- was reserved for output, on average of those with usage.
-- The worst first: by the greatest of the factors, that of input up or down, of the mean output estimate ÷ the 95th
-- percentile (an output's estimate is a ceiling: only what lies beyond is too much), and of requests ÷ requests with
-- usage. groups: how many there are beyond p_limit, too. Takes no locks. One pass over the reservations: ratios are counted in steps of
-- 2 %, and output tokens by their number, so that nothing is sorted that grows with the requests.
CREATE OR REPLACE FUNCTION quota_estimates(
    p_since timestamptz, p_until timestamptz, p_model text, p_by text, p_min_requests int, p_limit int)
RETURNS TABLE (model text, label text, requests bigint, with_usage bigint, missing bigint, over_estimate bigint,
               factor_in numeric, median_in numeric, outliers_in bigint, factor_out numeric, median_out numeric,
               outliers_out bigint, p95_out_tokens bigint, mean_out_estimate bigint, groups bigint)
LANGUAGE sql STABLE
SET search_path FROM CURRENT
SET jit = off
AS $$
    WITH request AS (
        SELECT coalesce(r.answered_model, r.requested_model, '') AS model,
               coalesce(CASE p_by WHEN 'app' THEN r.app WHEN 'key' THEN r.api_key END, '') AS label,
               r.usage_missing, r.estimated_in_tokens AS e_in, r.estimated_out_tokens AS e_out,
               r.usage_in_tokens AS u_in, r.usage_out_tokens AS u_out
          FROM quota_reservations r
         WHERE r.admitted_at > p_since AND r.admitted_at <= p_until
           AND r.ended_at IS NOT NULL AND NOT r.unreserved AND (r.state <> 'released' OR r.usage_in_tokens IS NOT NULL)
           AND (p_model IS NULL OR coalesce(r.answered_model, r.requested_model, '') = p_model)
    ), stepped AS (
        -- steps of the ratio's logarithm: 50 to a factor of e
        SELECT q.*,
               CASE WHEN q.u_in IS NOT NULL AND q.e_in > 0
                    THEN round(50 * ln(greatest(q.u_in, 0.001::float8) / q.e_in))::int END AS step_in,
               CASE WHEN q.u_out IS NOT NULL AND q.e_out > 0
                    THEN round(50 * ln(greatest(q.u_out, 0.001::float8) / q.e_out))::int END AS step_out
          FROM request q
    ), counted AS MATERIALIZED (
        SELECT s.model, s.label, grouping(s.step_in, s.step_out, s.u_out) AS level, s.step_in, s.step_out, s.u_out,
               count(*) AS requests, count(s.u_in) AS with_usage, count(*) FILTER (WHERE s.usage_missing) AS missing,
               count(*) FILTER (WHERE s.u_in > s.e_in OR s.u_out > s.e_out) AS over_estimate,
               sum(s.e_in) FILTER (WHERE s.u_in IS NOT NULL) AS e_in, sum(s.u_in) AS in_used,
               sum(s.e_out) FILTER (WHERE s.u_in IS NOT NULL) AS e_out, sum(s.u_out) AS out_used
          FROM stepped s
         GROUP BY GROUPING SETS ((s.model, s.label), (s.model, s.label, s.step_in), (s.model, s.label, s.step_out),
                                 (s.model, s.label, s.u_out))
    ), side AS (
        SELECT c.model, c.label, 'in' AS side, c.step_in AS step, c.with_usage AS n, c.e_in AS estimated, c.in_used AS used
          FROM counted c WHERE c.level = 3 AND c.step_in IS NOT NULL AND c.with_usage > 0
        UNION ALL
        SELECT c.model, c.label, 'out', c.step_out, c.with_usage, c.e_out, c.out_used
          FROM counted c WHERE c.level = 5 AND c.step_out IS NOT NULL AND c.with_usage > 0
    ), ranked AS (
        SELECT s.*, sum(s.n) OVER (PARTITION BY s.model, s.label, s.side ORDER BY s.step) AS up_to,
               sum(s.n) OVER (PARTITION BY s.model, s.label, s.side) AS total
          FROM side s
    ), halved AS (
        SELECT r.*, min(r.step) FILTER (WHERE 2 * r.up_to >= r.total)
                        OVER (PARTITION BY r.model, r.label, r.side) AS middle
          FROM ranked r
    ), fitted AS MATERIALIZED (
        -- 230 steps are a factor of 100
        SELECT h.model, h.label, h.side,
               sum(h.used) FILTER (WHERE abs(h.step - h.middle) <= 230)
                   / sum(h.estimated) FILTER (WHERE abs(h.step - h.middle) <= 230) AS factor,
               sum(h.used) FILTER (WHERE h.step = h.middle)
                   / sum(h.estimated) FILTER (WHERE h.step = h.middle) AS median,
               coalesce(sum(h.n) FILTER (WHERE abs(h.step - h.middle) > 230), 0)::bigint AS outliers
          FROM halved h
         GROUP BY h.model, h.label, h.side
        HAVING sum(h.n) >= p_min_requests
    ), outputs AS (
        SELECT c.model, c.label, c.u_out, c.requests,
               sum(c.requests) OVER (PARTITION BY c.model, c.label ORDER BY c.u_out) AS up_to,
               sum(c.requests) OVER (PARTITION BY c.model, c.label) AS total
          FROM counted c WHERE c.level = 6 AND c.u_out IS NOT NULL
    ), p95 AS MATERIALIZED (
        SELECT o.model, o.label, min(o.u_out) FILTER (WHERE 100 * o.up_to >= 95 * o.total) AS tokens
          FROM outputs o
         GROUP BY o.model, o.label
        HAVING max(o.total) >= p_min_requests
    ), judged AS (
        SELECT c.model, c.label, c.requests, c.with_usage, c.missing, c.over_estimate,
               i.factor AS factor_in, i.median AS median_in, i.outliers AS outliers_in,
               o.factor AS factor_out, o.median AS median_out, o.outliers AS outliers_out, p.tokens,
               CASE WHEN c.with_usage > 0 THEN round(c.e_out / c.with_usage)::bigint END AS mean_out_estimate,
               -- GREATEST leaves out what is NULL
               CASE WHEN c.requests >= p_min_requests
                    THEN greatest(i.factor, 1 / nullif(i.factor, 0), o.factor,
                                  c.e_out / nullif(c.with_usage * p.tokens, 0),
                                  CASE WHEN c.with_usage = 0 THEN 'Infinity'::numeric
                                       ELSE c.requests::numeric / c.with_usage END) END AS badness
          FROM counted c
          LEFT JOIN fitted i ON i.model = c.model AND i.label = c.label AND i.side = 'in'
          LEFT JOIN fitted o ON o.model = c.model AND o.label = c.label AND o.side = 'out'
          LEFT JOIN p95 p ON p.model = c.model AND p.label = c.label
         WHERE c.level = 7
    )
    SELECT j.model, j.label, j.requests, j.with_usage, j.missing, j.over_estimate, j.factor_in, j.median_in,
           j.outliers_in, j.factor_out, j.median_out, j.outliers_out, j.tokens,
           j.mean_out_estimate, count(*) OVER ()
      FROM judged j
     ORDER BY j.badness DESC NULLS LAST, j.requests DESC, j.model, j.label
     LIMIT p_limit
$$;
