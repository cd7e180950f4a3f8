-- name: crossings_wait
-- Does a crossing wait to be told? Hardly a row is ever there: a look costs next to nothing.
SELECT EXISTS (SELECT FROM quota_crossings) AS waiting;

-- name: server_process
-- The server's process that serves this statement: behind a pooler it isn't the one that the connection names.
SELECT pg_backend_pid() AS pid;

-- name: probe
-- A notification to ourselves: whoever hears it will hear of crossings.
SELECT pg_notify('quota_crossing', $1::text);
