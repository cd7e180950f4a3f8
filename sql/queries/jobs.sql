-- name: tick_begin
SELECT granted, fence, lease_until, due, idle
  FROM tick_begin($1::text, $2::integer, $3::text[], $4::integer[], $5::boolean[], $6::timestamptz, $7::boolean);

-- name: tick_due
SELECT job FROM tick_due($1::text[], $2::integer[], $3::boolean[], COALESCE($4::timestamptz, clock_timestamp()))
 ORDER BY ordinal;

-- name: tick_renew
SELECT tick_renew($1::bigint, $2::integer) AS renewed;

-- name: tick_record
SELECT tick_record($1::bigint, $2::text::jsonb, $3::boolean, $4::timestamptz, $5::boolean) AS written;

-- name: months_to_roll
SELECT month FROM quota_months_to_roll($1::timestamptz) AS month ORDER BY month;

-- name: book_adjustments
SELECT quota_book_adjustments($1::timestamptz) AS booked;

-- name: book_legacy_month
SELECT quota_book_legacy_month($1::date, $2::integer, $3::timestamptz) AS booked;

-- name: roll_month
-- $3: the clock of the program's machine. Closing is for good, so by the clock ($2 NULL) a month closes only when both
-- clocks say that its grace is over; held_back: this one alone says not. closed_early: by a time to come.
SELECT r.rows, r.closed, r.closed AND c.closes_at > clock_timestamp() AS closed_early, c.held_back
  FROM (SELECT k.closes_at, $2::timestamptz IS NULL AND k.closes_at <= clock_timestamp()
                                AND k.closes_at > $3::timestamptz AS held_back
          FROM (SELECT quota_month_end($1::date) + interval '72 hours' AS closes_at) k) c
 CROSS JOIN LATERAL quota_roll_month($1::date, $2::timestamptz, CASE WHEN c.held_back THEN 1000000 ELSE 72 END) r;
