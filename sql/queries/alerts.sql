-- name: alerts_clock
-- quiet_until: when the quiet hours $1 (JSON as quota_quiet reads it) that hold now are over; NULL outside of them.
SELECT n.at, g.billing_zone, g.currency, z.zone AS quiet_zone,
       CASE WHEN quota_quiet($1::jsonb, n.at)
            THEN (l.local::date + (l.local::time >= l.ends)::int + l.ends) AT TIME ZONE z.zone END AS quiet_until
  FROM quota_settings g
 CROSS JOIN LATERAL (SELECT clock_timestamp() AS at) n
 CROSS JOIN LATERAL (SELECT coalesce($1::jsonb ->> 'zone', g.billing_zone) AS zone) z
 CROSS JOIN LATERAL (SELECT n.at AT TIME ZONE z.zone AS local, ($1::jsonb ->> 'to')::time AS ends) l;

-- name: deliveries
-- A report is no alert: its severity is told as 'report', which no route can ask for.
-- The messages of at most $4 alerts, newest first: those that have a message made since $1, about the subject $2, in
-- the state $3; NULL: any. An alert's messages are those of one message_key, fallbacks too. An alert stands where the
-- first of its messages that fit does, so that the index by time is read no further than needed.
WITH chosen AS MATERIALIZED (
    SELECT o.message_key, o.created_at AS first_at
      FROM quota_outbox o
     WHERE ($1::timestamptz IS NULL OR o.created_at >= $1)
       AND ($2::text IS NULL OR o.subject = $2)
       AND ($3::text IS NULL OR o.state = $3)
       AND NOT EXISTS (SELECT FROM quota_outbox e
                        WHERE e.message_key = o.message_key
                          AND ($1::timestamptz IS NULL OR e.created_at >= $1)
                          AND ($3::text IS NULL OR e.state = $3)
                          AND (e.created_at, e.outbox_id) < (o.created_at, o.outbox_id))
     ORDER BY o.created_at DESC, o.outbox_id DESC
     LIMIT $4::integer
)
SELECT o.outbox_id, o.message_key, min(o.created_at) OVER (PARTITION BY o.message_key) AS decided_at, o.kind,
       CASE o.kind WHEN 'roi-report' THEN 'report' ELSE o.severity END AS severity,
       o.subject_kind, o.subject, o.environment, o.locale, o.channel, o.recipient, o.state, o.attempts, o.digest_only, o.urgency, o.next_attempt_at, o.lease_until,
       o.first_attempt_at, o.sent_at, o.ended_at, o.last_failure, o.last_detail, o.failed_at, o.fallback_of,
       o.superseded_by, o.acked_at, o.acked_by, o.ack_note, o.dedupe_key, o.request_key, o.created_at,
       o.facts::text AS facts
  FROM chosen c
  JOIN quota_outbox o ON o.message_key = c.message_key
 ORDER BY c.first_at DESC, c.message_key, o.created_at, o.channel, o.recipient NULLS FIRST, o.outbox_id;

-- name: deliveries_of
-- As deliveries, of the alerts that the messages $1 belong to.
SELECT o.outbox_id, o.message_key, min(o.created_at) OVER (PARTITION BY o.message_key) AS decided_at, o.kind,
       CASE o.kind WHEN 'roi-report' THEN 'report' ELSE o.severity END AS severity,
       o.subject_kind, o.subject, o.environment, o.locale, o.channel, o.recipient, o.state, o.attempts, o.digest_only, o.urgency, o.next_attempt_at, o.lease_until,
       o.first_attempt_at, o.sent_at, o.ended_at, o.last_failure, o.last_detail, o.failed_at, o.fallback_of,
       o.superseded_by, o.acked_at, o.acked_by, o.ack_note, o.dedupe_key, o.request_key, o.created_at,
       o.facts::text AS facts
  FROM quota_outbox o
 WHERE o.message_key IN (SELECT m.message_key FROM quota_outbox m WHERE m.outbox_id = ANY ($1::bigint[]))
 ORDER BY o.message_key, o.created_at, o.channel, o.recipient NULLS FIRST, o.outbox_id;

-- name: unacknowledged
-- What was given up and nobody has acknowledged, the oldest first, by the index of dead messages; at most $1. One
-- fallback may tell for several channels of an alert.
SELECT o.outbox_id, o.channel, o.recipient, CASE o.kind WHEN 'roi-report' THEN 'report' ELSE o.severity END AS severity, o.subject,
       o.ended_at, o.last_failure,
       EXISTS (SELECT FROM quota_outbox f
                WHERE f.message_key = o.message_key AND f.fallback_of IS NOT NULL AND f.channel <> o.channel
                  AND f.state = 'sent') AS told_elsewhere,
       count(*) OVER () AS messages
  FROM quota_outbox o
 WHERE o.state = 'dead' AND o.acked_at IS NULL
 ORDER BY o.created_at, o.outbox_id
 LIMIT $1::integer;

-- name: digest_sizes
-- Of each request of these, how many messages it holds. A sent digest's key is that of its members still.
SELECT o.request_key, count(*) AS messages
  FROM quota_outbox o
 WHERE o.request_key = ANY ($1::text[])
 GROUP BY o.request_key;

-- name: superseding
-- The first message of each of these alerts, to be named by its id.
SELECT o.message_key, min(o.outbox_id) AS outbox_id
  FROM quota_outbox o
 WHERE o.message_key = ANY ($1::text[])
 GROUP BY o.message_key;

-- name: crossings
-- Each threshold that the alert tells, as it was when it was found.
SELECT w.dimension, w.period_kind, w.period_start, w.threshold, w.generation, w.state, w.severity, w.used, w.held, w.cap,
       w.refused_at, w.logged_at, w.rearmed_at, w.rearmed_by
  FROM quota_warn_log w
 WHERE w.message_key = $1::text
 ORDER BY w.period_kind, w.dimension, w.period_start, w.threshold DESC, w.generation;

-- name: retry
SELECT outbox_id, outcome FROM quota_outbox_retry($1::bigint[], $2::timestamptz);

-- name: ack
SELECT outbox_id, outcome FROM quota_outbox_ack($1::bigint[], $2::text, $3::text, $4::timestamptz);
