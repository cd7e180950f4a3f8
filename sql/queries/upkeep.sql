-- name: upkeep
SELECT removed, done FROM quota_upkeep($1::text, $2::integer, $3::timestamptz, $4::integer);

-- name: upkeep_count
SELECT quota_upkeep_count($1::text, $2::integer, $3::timestamptz, $4::integer);
