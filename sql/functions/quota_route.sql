-- Where a message about a subject goes: each channel, and on those that serve many, each address, once.
--
-- p_routes: {"rules": [{"tenants": […], "departments": […], "environments": […], "severities": […], "to": [{"channel": "ops"},
-- {"channel": "mail", "recipient": "a@example.com"}], "owners": "mail"}], "default": {"to": […], "owners": null}}.
-- The first rule whose every list names the subject decides (no list: any), else default. owners: the channel
-- through which a department's own message also goes to its owner and finance addresses. A tenant's department is
-- matched too. Nobody at all: the console. Takes no locks.
CREATE OR REPLACE FUNCTION quota_route(
    p_routes jsonb, p_subject_kind text, p_subject text, p_department text, p_environment text, p_severity text)
RETURNS TABLE (channel text, recipient text)
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
    WITH route AS MATERIALIZED (
        SELECT coalesce(
            (SELECT r.rule
               FROM jsonb_array_elements(p_routes -> 'rules') WITH ORDINALITY AS r (rule, place)
              WHERE (r.rule -> 'tenants' IS NULL
                     OR p_subject_kind = 'tenant' AND r.rule -> 'tenants' ? p_subject)
                AND (r.rule -> 'departments' IS NULL
                     OR p_department IS NOT NULL AND r.rule -> 'departments' ? p_department)
                AND (r.rule -> 'environments' IS NULL OR r.rule -> 'environments' ? p_environment)
                AND (r.rule -> 'severities' IS NULL OR r.rule -> 'severities' ? p_severity)
              ORDER BY r.place LIMIT 1),
            p_routes -> 'default') AS rule
    ), target AS (
        SELECT t.one ->> 'channel' AS channel, t.one ->> 'recipient' AS recipient, 0 AS rank
          FROM route r, jsonb_array_elements(r.rule -> 'to') AS t (one)
        UNION ALL
        SELECT r.rule ->> 'owners', a.address, 1
          FROM route r
          JOIN departments d ON d.department_id = p_subject
         CROSS JOIN LATERAL unnest(quota_texts(d.owner_emails) || quota_texts(d.finance_emails)) AS a (address)
         WHERE p_subject_kind = 'department' AND r.rule ->> 'owners' IS NOT NULL
    ), once AS (
        SELECT DISTINCT ON (t.channel, lower(t.recipient)) t.channel, t.recipient
          FROM target t WHERE t.channel IS NOT NULL
         ORDER BY t.channel, lower(t.recipient), t.rank, t.recipient
    )
    SELECT o.channel, o.recipient FROM once o
    UNION ALL
    SELECT 'console', NULL WHERE NOT EXISTS (SELECT FROM once)
$$;
