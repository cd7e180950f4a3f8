-- name: note_paces
SELECT hours, rows, removed FROM quota_paces_note($1::timestamptz, $2::integer);

-- name: watch
SELECT burns, runaways, messages
  FROM quota_watch($1::timestamptz, $2::jsonb,
                   jsonb_build_object('day_hours', $3::integer, 'month_hours', $4::integer, 'burn_times', $5::integer,
                                      'usual_times', $6::integer, 'min_requests', $7::integer), $8::integer, $9::boolean);
