-- name: decide
SELECT crossings, messages, superseded, rearmed
  FROM quota_soft_warn($1::timestamptz, $2::jsonb, $3::integer);

-- name: count_untold
SELECT count(*)
  FROM (SELECT coalesce($1::timestamptz, clock_timestamp()) AS now) AS t
 CROSS JOIN LATERAL quota_warn_untold(t.now,
                coalesce((SELECT s.scanned_at FROM quota_warn_scans s WHERE s.scan = 'soft_warn'),
                         t.now - interval '1 day'));

-- name: untold
-- Of each cap the highest threshold that the decision would tell now, at most $2, in its order.
SELECT u.subject_kind, u.subject, u.environment, u.dimension, u.period_kind, max(u.threshold) AS threshold
  FROM (SELECT coalesce($1::timestamptz, clock_timestamp()) AS now) AS t
 CROSS JOIN LATERAL quota_warn_untold(t.now,
                coalesce((SELECT s.scanned_at FROM quota_warn_scans s WHERE s.scan = 'soft_warn'),
                         t.now - interval '1 day')) u
 WHERE NOT u.told_higher
 GROUP BY u.past, u.subject_kind, u.subject, u.environment, u.dimension, u.period_kind, u.period_start
 ORDER BY u.past, u.subject_kind, u.subject, u.environment, u.period_kind, u.dimension, u.period_start
 LIMIT $2::integer;

-- name: claim
-- A report is no alert, of whatever severity its row is; webhooks pass on what is told here.
SELECT outbox_id, lease_token, kind, channel, recipient,
       CASE kind WHEN 'roi-report' THEN 'report' ELSE severity END AS severity, locale, facts, attempt, dedupe_key,
       created_at, is_fallback, digest_key, overdue
  FROM quota_outbox_claim($1::text, $2::text[], $3::integer, $4::integer, $5::integer, $6::jsonb, $7::timestamptz);

-- name: keep
SELECT quota_outbox_keep($1::bigint[], $2::uuid) AS digest_key;

-- name: finish
SELECT quota_outbox_finish($1::bigint[], $2::uuid, $3::timestamptz) AS finished;

-- name: fail
SELECT retried, dead, untold, lost, wait_seconds
  FROM quota_outbox_fail($1::bigint[], $2::uuid, $3::text, $4::text, $5::boolean, $6::jsonb, $7::timestamptz);

-- name: take_slot
SELECT quota_channel_slot($1::text, $2::integer, $3::integer) AS wait_seconds;

-- name: count_due
SELECT count(*)
  FROM (SELECT coalesce($1::timestamptz, clock_timestamp()) AS now) AS t
  JOIN quota_outbox o
    ON o.state = 'pending' AND quota_outbox_ready(o.next_attempt_at, t.now)
       OR o.state = 'sending' AND quota_outbox_ready(o.lease_until, t.now)
 WHERE o.urgency = 0 OR NOT quota_quiet($2::jsonb, t.now);

-- name: due
-- How many of each channel's messages wait to be sent now.
SELECT o.channel, count(*) AS messages
  FROM (SELECT coalesce($1::timestamptz, clock_timestamp()) AS now) AS t
  JOIN quota_outbox o
    ON o.state = 'pending' AND quota_outbox_ready(o.next_attempt_at, t.now)
       OR o.state = 'sending' AND quota_outbox_ready(o.lease_until, t.now)
 WHERE o.urgency = 0 OR NOT quota_quiet($2::jsonb, t.now)
 GROUP BY o.channel
 ORDER BY o.channel;

-- name: report_facts
-- A report's facts with its summary, as text; no row where the message only tells that a mail of it failed.
SELECT (o.facts || jsonb_build_object('summary', r.summary::text))::text
  FROM quota_outbox o
  JOIN quota_reports r ON r.month = to_date(o.facts ->> 'month', 'YYYY-MM') AND r.department_id = o.facts ->> 'department_id'
                      AND r.revision = (o.facts ->> 'revision')::integer
 WHERE o.outbox_id = $1::bigint AND o.fallback_of IS NULL;
