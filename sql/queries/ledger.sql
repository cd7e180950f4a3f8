-- name: expire_stale
SELECT tenant_id, policy, ended, in_tokens, out_tokens, cost_nanos
  FROM quota_expire_stale($1::integer, $2::timestamptz);

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
SELECT worked, priced FROM quota_price_unpriced($1::integer, $2::timestamptz);

-- name: count_waiting
-- Each counted to a limit. priceable: of those whose last try was before today's prices and rates, the first.
SELECT (SELECT count(*) FROM (SELECT FROM quota_reservations r
                               WHERE r.state = 'open' AND r.expires_at <= t.at LIMIT $1::integer) o) AS overdue,
       (SELECT count(*) FROM (SELECT FROM quota_usage_inbox i WHERE i.booked_at IS NULL LIMIT $1::integer) w) AS inbox,
       (SELECT count(*)
          FROM (SELECT n.tenant_id, n.request_id, n.model FROM quota_unpriced n
                 WHERE n.tried_at < greatest((SELECT max(p.loaded_at) FROM quota_prices p),
                                             (SELECT max(c.loaded_at) FROM quota_currency_rates c))
                 ORDER BY n.tried_at, n.tenant_id, n.request_id LIMIT $1::integer) l
          JOIN quota_reservations q ON q.tenant_id = l.tenant_id AND q.request_id = l.request_id
          CROSS JOIN LATERAL quota_price_find(l.model, q.charged_in_tokens, q.admitted_at) f
         WHERE q.unpriced AND f.fault IS NULL) AS priceable
  FROM (SELECT quota_now($2::timestamptz) AS at) t;

-- name: others_ask
-- Whether something is overdue, and usage sources were asked, or their answers set aside, within so many hours. The
-- time of an asking's rate is real time.
SELECT EXISTS (SELECT FROM quota_reservations r WHERE r.state = 'open' AND r.expires_at <= t.at)
       AND (EXISTS (SELECT FROM quota_source_asks a WHERE a.asked_at > t.at - t.lately)
            OR EXISTS (SELECT FROM quota_source_faults f WHERE f.seen_at > t.at - t.lately)
            OR EXISTS (SELECT FROM quota_source_rates q WHERE q.next_at > clock_timestamp() - t.lately)) AS others_ask
  FROM (SELECT quota_now($2::timestamptz) AS at, make_interval(hours => $1::integer) AS lately) t;
