-- name: expire_stale
SELECT tenant_id, policy, ended, in_tokens, out_tokens, cost_nanos
  FROM quota_expire_stale($1::integer, $2::timestamptz);

-- name: expire_overdue
SELECT tenant_id, policy, ended, in_tokens, out_tokens, cost_nanos
  FROM quota_expire_overdue($1::integer, $2::timestamptz, $3::integer);

-- name: count_overdue
SELECT count(*) AS overdue
  FROM (SELECT 1
          FROM quota_reservations r
         WHERE r.state = 'open'
           AND r.expires_at <= COALESCE($2::timestamptz, clock_timestamp())
         LIMIT $1::integer) AS o;

-- name: book_legacy
SELECT quota_book_legacy($1::integer, $2::timestamptz) AS booked;

-- name: mirror_buckets
SELECT quota_mirror_buckets($1::integer, $2::timestamptz) AS mirrored;

-- name: book_inbox
SELECT taken, booked, refused FROM quota_book_inbox($1::integer, $2::timestamptz);

-- name: price_unpriced
SELECT quota_price_unpriced($1::integer, $2::timestamptz) AS priced;
