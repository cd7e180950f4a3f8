-- Ends a reservation, or changes what an ended one was charged, and books the difference on the day of its
-- admission; answers what is still to be booked on its department. The caller holds the tenant's lock; r is the
-- row as it stands. A day of another month than p_now's may be in a closed one: the difference is noted as an event
-- of quota_adjustments, too (see quota_book_adjustments).
CREATE OR REPLACE FUNCTION quota_reservation_post(
    r quota_reservations, p_state text, p_in_tokens bigint, p_out_tokens bigint, p_cost_nanos bigint,
    p_count boolean, p_now timestamptz
) RETURNS quota_booking
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_open boolean := r.state = 'open';
    v_in   bigint := CASE WHEN v_open THEN r.estimated_in_tokens ELSE r.charged_in_tokens END;
    v_out  bigint := CASE WHEN v_open THEN r.estimated_out_tokens ELSE r.charged_out_tokens END;
    v_cost bigint := CASE WHEN v_open THEN r.estimated_cost_nanos ELSE r.charged_cost_nanos END;
    v_held int := CASE WHEN v_open THEN -1 ELSE 0 END;
BEGIN
    UPDATE quota_reservations q SET
        state = p_state,
        charged_in_tokens = p_in_tokens, charged_out_tokens = p_out_tokens, charged_cost_nanos = p_cost_nanos,
        completion_counted = p_count,
        ended_at = coalesce(r.ended_at, p_now),
        updated_at = CASE WHEN v_open THEN r.updated_at ELSE p_now END
    WHERE q.tenant_id = r.tenant_id AND q.request_id = r.request_id;
    PERFORM quota_usage_add(r.tenant_id, r.period, p_count::int - r.completion_counted::int,
                            p_in_tokens - v_in, p_out_tokens - v_out, p_cost_nanos - v_cost,
                            v_held * v_in, v_held * v_out, v_held * v_cost, false);
    IF quota_month(r.period) <> quota_month(quota_day(p_now)) THEN
        PERFORM quota_adjustment_note(r.tenant_id, r.request_id, r.department_id, r.environment, r.period,
                                      p_count::int - r.completion_counted::int, p_in_tokens - v_in, p_out_tokens - v_out,
                                      p_cost_nanos - v_cost, p_now, r.model, r.app);
    END IF;
    RETURN (r.department_id, r.environment, quota_month(r.period), p_in_tokens + p_out_tokens - v_in - v_out,
            p_cost_nanos - v_cost, v_held * (v_in + v_out), v_held * v_cost)::quota_booking;
END $$;

-- Notes what changed on a day of another month, unless nothing did.
CREATE OR REPLACE FUNCTION quota_adjustment_note(
    p_tenant text, p_request_id text, p_department text, p_environment text, p_period date,
    p_completions numeric, p_in_tokens numeric, p_out_tokens numeric, p_cost_nanos numeric, p_now timestamptz,
    p_model text DEFAULT NULL, p_app text DEFAULT NULL
) RETURNS void
LANGUAGE sql VOLATILE
AS $$
    INSERT INTO quota_adjustments (tenant_id, request_id, department_id, environment, period, completions, input_tokens,
                                   output_tokens, cost_nanos, adjusted_at, model, app)
    SELECT p_tenant, p_request_id, coalesce(p_department, ''), coalesce(p_environment, 'production'), p_period,
           p_completions, p_in_tokens, p_out_tokens, p_cost_nanos, p_now, coalesce(p_model, ''), coalesce(p_app, '')
     WHERE (p_completions, p_in_tokens, p_out_tokens, p_cost_nanos) <> (0, 0, 0, 0)
$$;
