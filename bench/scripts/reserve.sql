\set t random(:first, :last)
\set r random(1, 9000000000000000000)
SELECT * FROM quota_reserve('tenant-' || :t, 'r-' || :r, 500, 200, 1500000, 'large', 'chat', 'key-7', 'user-7');
