-- name: note_paces
SELECT hours, rows, removed FROM quota_paces_note($1::timestamptz, $2::integer);

-- name: watch
SELECT burns, runaways, messages
  FROM quota_watch($1::timestamptz, $2::jsonb,
                   jsonb_build_object('day_hours', $3::integer, 'month_hours', $4::integer, 'burn_times', $5::integer,
                                      'burn_requests', $6::integer, 'usual_times', $7::integer,
                                      'min_requests', $8::integer), $9::integer, $10::boolean);
