-- name: decide
SELECT crossings, messages, superseded, rearmed
  FROM quota_soft_warn($1::timestamptz, $2::text[], $3::integer);

-- name: count_untold
SELECT count(*)
  FROM (SELECT coalesce($1::timestamptz, clock_timestamp()) AS now) AS t
 CROSS JOIN LATERAL quota_warn_untold(t.now,
                coalesce((SELECT s.scanned_at FROM quota_warn_scans s WHERE s.scan = 'soft_warn'),
                         t.now - interval '1 day'));

-- name: claim
SELECT outbox_id, lease_token, kind, channel, severity, locale, facts, attempt, dedupe_key, created_at, is_fallback
  FROM quota_outbox_claim($1::text, $2::text[], $3::integer, $4::integer, $5::timestamptz);

-- name: finish
SELECT quota_outbox_finish($1::bigint, $2::uuid, $3::timestamptz) AS finished;

-- name: fail
SELECT outcome, wait_seconds, told
  FROM quota_outbox_fail($1::bigint, $2::uuid, $3::text, $4::text, $5::boolean, $6::text, $7::timestamptz);

-- name: take_slot
SELECT quota_channel_slot($1::text, $2::integer, $3::integer) AS wait_seconds;

-- name: count_due
SELECT count(*)
  FROM quota_outbox o
 WHERE o.state = 'pending' AND o.next_attempt_at <= coalesce($1::timestamptz, clock_timestamp())
    OR o.state = 'sending' AND o.lease_until <= coalesce($1::timestamptz, clock_timestamp());
