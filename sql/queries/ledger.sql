-- name: find_overdue
SELECT places::text AS places, cardinality(places) AS rows
  FROM quota_overdue_find($1::integer, $2::integer, $3::timestamptz, $4::integer);

-- name: expire_places
SELECT tenant_id, policy, ended, in_tokens, out_tokens, cost_nanos
  FROM quota_expire_places($1::text::tid[], $2::timestamptz, $3::integer, $4::boolean);

-- name: book_legacy
SELECT quota_book_legacy($1::integer, $2::timestamptz) AS booked;

-- name: mirror_buckets
SELECT quota_mirror_buckets($1::integer, $2::timestamptz) AS mirrored;

-- name: book_inbox
SELECT taken, booked, refused FROM quota_book_inbox($1::integer, $2::timestamptz);

-- name: price_unpriced
SELECT quota_price_unpriced($1::integer, $2::timestamptz) AS priced;
