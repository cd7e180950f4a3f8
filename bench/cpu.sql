-- What a call costs the server's processor, without client, protocol and durable commit. Linux only: a
-- backend reads its own /proc. Far steadier than a rate where others use the machine too.

-- User and system time of this backend so far, to 10 ms.
CREATE FUNCTION bench.cpu_milliseconds() RETURNS bigint
LANGUAGE sql VOLATILE
AS $$
    SELECT 10 * (split_part(s, ' ', 14)::bigint + split_part(s, ' ', 15)::bigint)
    FROM pg_read_file('/proc/self/stat') s
$$;

-- Microseconds per call of 'reserve', 'settle' or 'two_table', evenly over the first p_tenants tenants;
-- 'settle' ends what was reserved, outside of the time taken.
CREATE PROCEDURE bench.cpu(p_what text, p_calls int, p_tenants int, INOUT microseconds double precision)
LANGUAGE plpgsql
AS $$
DECLARE
    c_chunk  CONSTANT int := 50;     -- calls per transaction: each keeps its tenant's lock
    v_run    text := gen_random_uuid();
    v_tenant text[];
    v_begin  bigint;
    v_total  bigint := 0;
    v_answer record;
BEGIN
    FOR n IN 0 .. p_calls / c_chunk LOOP
        v_tenant := ARRAY(SELECT 'tenant-' || floor(random() * p_tenants) FROM generate_series(1, c_chunk));
        IF p_what = 'settle' THEN
            FOR i IN 1 .. c_chunk LOOP
                PERFORM quota_reserve(v_tenant[i], v_run || n * c_chunk + i, 500, 200, 1500000, 'large');
            END LOOP;
        END IF;
        -- the first chunk makes the plans
        IF n = 1 OR p_what = 'settle' THEN
            v_begin := bench.cpu_milliseconds();
        END IF;
        FOR i IN 1 .. c_chunk LOOP
            IF p_what = 'reserve' THEN
                SELECT * INTO v_answer
                FROM quota_reserve(v_tenant[i], v_run || n * c_chunk + i, 500, 200, 1500000,
                                   'large', 'chat', 'key-7', 'user-7');
            ELSIF p_what = 'settle' THEN
                SELECT * INTO v_answer
                FROM quota_settle(v_tenant[i], v_run || n * c_chunk + i, 480, 150, 1300000,
                                  'u-' || i, 'large', 100);
            ELSE
                SELECT * INTO v_answer FROM bench.two_table(v_tenant[i], 500, 200, 1);
            END IF;
        END LOOP;
        IF p_what = 'settle' AND n > 0 THEN
            v_total := v_total + bench.cpu_milliseconds() - v_begin;
        END IF;
        COMMIT;
    END LOOP;
    IF p_what <> 'settle' THEN
        v_total := bench.cpu_milliseconds() - v_begin;
    END IF;
    microseconds := 1000.0 * v_total / (p_calls / c_chunk * c_chunk);
END $$;
