-- name: diagnose
SELECT groups, messages FROM quota_diagnose($1::timestamptz, $2::jsonb, $3::integer, $4::integer, $5::integer);

-- name: count_missing_untold
SELECT count(*)
  FROM quota_diagnosis_groups(coalesce($1::timestamptz, clock_timestamp()), $2::integer, $3::integer);

-- name: estimates
-- By the clock; $1 days back.
SELECT model, label, requests, with_usage, missing, over_estimate, factor_in, median_in, outliers_in, factor_out,
       median_out, outliers_out, p95_out_tokens, mean_out_estimate, groups
  FROM (SELECT clock_timestamp() AS now) AS t
 CROSS JOIN quota_estimates(t.now - make_interval(days => $1::integer), t.now, $2::text, $3::text, $4::integer,
                            $5::integer);
