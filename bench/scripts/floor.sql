\set t random(:first, :last)
UPDATE bench.floor SET used = used + 1 WHERE tenant_id = 'tenant-' || :t;
