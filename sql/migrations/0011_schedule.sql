-- Crossings are told at once: what waits to be told, until a pass of quota_soft_warn has looked.

-- A row per crossing, written by the charge that made it, in its transaction. Hardly ever more than a few rows.
CREATE TABLE quota_crossings (
    crossing_id   bigint      GENERATED ALWAYS AS IDENTITY,
    subject_kind  text        NOT NULL,
    crossed_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT quota_crossings_pkey PRIMARY KEY (crossing_id)
);

-- Whether the ceilings of the day were drawn with a threshold passed: should usage fall, they are to be drawn again, so
-- that the charge that passes it once more is seen.
ALTER TABLE quota_usage ADD COLUMN line_passed boolean;

-- It takes what was charged as well now.
DROP FUNCTION IF EXISTS quota_department_band(text, text, date, timestamptz);
