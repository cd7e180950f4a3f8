\set t random(:first, :last)
SELECT * FROM bench.two_table('tenant-' || :t, 500, 200, 1);
