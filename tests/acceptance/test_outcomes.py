"""`quota-worker outcomes` as a process on a real database, with the role that operators have."""

from __future__ import annotations

import asyncio
import json
import os
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from acceptance.program import quota_worker

if TYPE_CHECKING:
    import asyncpg

    from acceptance.program import Finished

HEAD = "month,department_id,metric,value\n"
# QUOTA_WORKER_OUTCOME_ROWS=1000000 for the full size
ROWS = int(os.environ.get("QUOTA_WORKER_OUTCOME_ROWS", "5000"))


async def outcomes(dsn: str, *words: str) -> Finished:
    return await quota_worker(f"{dsn}&options=-c%20role%3Dquota_worker", "outcomes", *words)


async def in_force(conn: asyncpg.Connection[Any]) -> dict[tuple[str, str, str], str]:
    rows = await conn.fetch("SELECT * FROM v_quota_outcomes")
    return {(f"{r['month']:%Y-%m}", r["department_id"], r["metric"]): str(r["value"]) for r in rows}


async def add_departments(conn: asyncpg.Connection[Any]) -> None:
    await conn.execute(
        "INSERT INTO departments (department_id, name) VALUES ('sales', 'Sales'), ('cs', '客服'), ('=ops', NULL)"
    )


async def test_imports_replace_as_a_whole_and_keep_their_history(
    dsn: str, conn: asyncpg.Connection[Any], tmp_path: Path
) -> None:
    await add_departments(conn)
    path = tmp_path / "october.csv"

    def write(*rows: str, encoding: str = "utf-8") -> str:
        path.write_bytes((HEAD + "".join(f"{row}\n" for row in rows)).encode(encoding))
        return str(path)

    first = write(
        '2026-10,sales,orders,"1,200"',
        "2026-10,cs,orders,30",
        "2026-10,cs,gmv,0.10",
        "2026-09,cs,orders,5",
    )
    done = await outcomes(dsn, "import", first, "--dry-run")
    assert (done.code, done.err) == (0, "nothing was written: --dry-run\n")
    assert await in_force(conn) == {}
    assert await conn.fetchval("SELECT count(*) FROM quota_outcome_imports") == 0
    dry = done.out
    done = await outcomes(dsn, "import", first)
    assert (done.code, done.err, done.out) == (0, "", dry)
    assert done.out.splitlines() == [
        "month    metric  departments  total",
        "2026-10  gmv               1   0.10",
        "2026-10  orders            2  1,230",
        "2026-09  orders            1      5",
        "october.csv: 4 rows: 4 added, 0 changed, 0 unchanged, 0 removed",
    ]
    october = {
        ("2026-10", "sales", "orders"): "1200",
        ("2026-10", "cs", "orders"): "30",
        ("2026-10", "cs", "gmv"): "0.10",
    }
    assert await in_force(conn) == {**october, ("2026-09", "cs", "orders"): "5"}

    # the same again changes nothing, and is noted; what a file doesn't speak of stays
    assert (
        "0 added, 0 changed, 4 unchanged, 0 removed" in (await outcomes(dsn, "import", first)).out
    )
    done = await outcomes(dsn, "import", write("2026-10,cs,orders,31"), "--keep-others")
    assert "1 row: 0 added, 1 changed, 0 unchanged, 0 removed" in done.out
    october["2026-10", "cs", "orders"] = "31"
    assert await in_force(conn) == {**october, ("2026-09", "cs", "orders"): "5"}
    await conn.execute("INSERT INTO quota_months (month, closed_at) VALUES ('2026-10-01', now())")
    done = await outcomes(
        dsn,
        "import",
        write(
            "2026-10,cs,orders,31.0",
            "2026-10,=ops,orders,2",
            "2026-10,cs,订单,7",
            encoding="gb18030",
        ),
    )
    assert "3 rows: 2 added, 0 changed, 1 unchanged, 1 removed" in done.out
    assert "closed, not reported yet" in done.out
    assert "read as GB18030" in done.err
    assert (
        "removed, as the file has them no more (--keep-others keeps them): 2026-10 orders of 'sales'\n"
        in done.err
    )
    assert await in_force(conn) == {
        ("2026-10", "cs", "orders"): "31", ("2026-10", "=ops", "orders"): "2", ("2026-10", "cs", "gmv"): "0.10",
        ("2026-10", "cs", "订单"): "7", ("2026-09", "cs", "orders"): "5",
    }  # fmt: skip

    done = await outcomes(dsn, "list", "--imports", "--json")
    imports = json.loads(done.out)["imports"]
    assert [(one["rows"], one["added"], one["changed"], one["removed"]) for one in imports] == [
        (3, 2, 0, 1), (1, 0, 1, 0), (4, 0, 0, 0), (4, 4, 0, 0),
    ]  # fmt: skip
    assert imports[0]["file_sha256"] == sha256(path.read_bytes()).hexdigest()
    assert (imports[0]["file_name"], imports[0]["imported_by"]) == (
        "october.csv",
        await conn.fetchval("SELECT session_user::text"),
    )
    done = await outcomes(
        dsn, "list", "--history", "--json", "--month", "2026-10", "--department", "sales"
    )
    (old,) = json.loads(done.out)["outcomes"]
    assert (old["value"], old["superseded_by"]) == ("1200", imports[0]["import_id"])


async def test_lists_and_the_template(
    dsn: str, conn: asyncpg.Connection[Any], tmp_path: Path
) -> None:
    done = await outcomes(dsn, "template")
    assert (done.code, done.out) == (2, "")
    assert "no departments yet" in done.err
    await add_departments(conn)
    path = tmp_path / "first.csv"
    path.write_text(HEAD + "2026-10,cs,orders,30\n2026-10,cs,gmv,0.10\n")
    assert (await outcomes(dsn, "import", str(path))).code == 0
    assert (await outcomes(dsn, "list", "--top", "1")).out.splitlines() == [
        "month    department  name  metric  value  import",
        "2026-10  cs          客服  gmv      0.10       1",
        "and more: --top 0 shows all",
    ]
    done = await outcomes(dsn, "list", "--department", "客服")
    assert (done.code, "that is the name of 'cs'" in done.err) == (2, True)
    await conn.execute("INSERT INTO tenant_limits (tenant_id, department_id) VALUES ('t', 'new')")
    hidden = tmp_path / os.fsdecode(b"n\xff.csv")
    hidden.write_text(HEAD + "2026-12,new,orders,30\n")
    done = await outcomes(
        dsn, "import", str(hidden), "--dry-run"
    )  # a department with tenants alone
    assert (done.code, "n\\udcff.csv: 1 row" in done.out) == (0, True)
    await conn.execute("DELETE FROM tenant_limits")

    blank = tmp_path / "blank.csv"
    assert (await outcomes(dsn, "template", str(blank), "--month", "2026-10")).code == 0
    lines = blank.read_text(encoding="utf-8-sig").splitlines()
    assert lines[1:5] == [
        "2026-10,'=ops,gmv,",
        "2026-10,'=ops,orders,",
        "2026-10,cs,gmv,0.10",
        "2026-10,cs,orders,30",
    ]
    assert len(lines) == 1 + 3 * 2  # departments, metrics
    assert (await outcomes(dsn, "template", str(blank))).code == 2  # nothing is written over
    blank.write_text("\n".join(line + "5" if line.endswith(",") else line for line in lines))
    done = await outcomes(dsn, "import", str(blank), "--json")
    report = json.loads(done.out)
    assert (done.code, report["rows"], report["added"], report["unchanged"]) == (0, 6, 4, 2)
    assert report["groups"][0] == {
        "month": "2026-10", "metric": "gmv", "departments": 3, "total": "10.10", "closed": False, "reported": False,
    }  # fmt: skip


async def test_a_file_with_faults_is_refused_whole(
    dsn: str, conn: asyncpg.Connection[Any], tmp_path: Path
) -> None:
    await add_departments(conn)
    path = tmp_path / "bad.csv"
    path.write_text(
        HEAD
        + "2026-10,cs,orders,1\n2026-10,sale,orders,1\n2026-10,cs,orders,1\n2026-10,cs,ORDERS,2\n2026-10,cs,gmv,-1\n"
    )
    done = await outcomes(dsn, "import", str(path))
    assert (done.code, done.out) == (2, "")
    assert done.err.splitlines() == [
        "quota-worker: 'bad.csv' (UTF-8 parted by commas): 4 rows are wrong, nothing was imported",
        "line 3: there is no department 'sale': did you mean 'sales'?",
        "line 4: 2026-10, 'cs', orders stands in line 2 already, with the same value: keep one of them",
        "line 5: 2026-10, 'cs', orders stands in line 2 already, with another value: keep one of them",
        "line 6: '-1' is negative: a value is 0 or more",
    ]
    assert await in_force(conn) == {}
    path.write_text(HEAD)
    assert "no rows in it, only a header" in (await outcomes(dsn, "import", str(path))).err
    many = "".join(f"2026-10,cs,m{n},1\n" for n in range(30))
    path.write_text(HEAD + many + "2026-10,cs,order,1\n2199-01,cs,orders,1\n")
    done = await outcomes(dsn, "import", str(path))
    assert (done.code, "and 8 more months and metrics" in done.out) == (0, True)
    assert "2199-01 has not begun yet: is that meant?\n" in done.err
    assert "the metric order is new, and much like orders: is that meant?\n" in done.err


async def test_two_imports_at_once_and_a_large_one(
    dsn: str, conn: asyncpg.Connection[Any], tmp_path: Path
) -> None:
    await add_departments(conn)
    for name in ("a", "b"):
        rows = "".join(f"2026-10,cs,m{n},{1 if name == 'a' else 2}\n" for n in range(50))
        (tmp_path / f"{name}.csv").write_text(HEAD + rows)
    ends = await asyncio.gather(
        *(outcomes(dsn, "import", str(tmp_path / f"{n}.csv")) for n in "ab")
    )
    assert [one.code for one in ends] == [0, 0]
    assert sorted(one.out.rpartition(": ")[2] for one in ends) == [
        "0 added, 50 changed, 0 unchanged, 0 removed\n",
        "50 added, 0 changed, 0 unchanged, 0 removed\n",
    ]
    assert len(set((await in_force(conn)).values())) == 1

    large = tmp_path / "large.csv"
    with large.open("w") as file:
        file.write(HEAD)
        file.writelines(
            f"{2000 + n // 12 % 100}-{n % 12 + 1:02},cs,m{n // 1200},{n}.25\n" for n in range(ROWS)
        )
    done = await outcomes(dsn, "import", str(large), "--keep-others")
    assert (done.code, f"{ROWS:,} rows" in done.out) == (0, True)
    total = await conn.fetchval(
        "SELECT sum(value) FROM quota_outcomes o JOIN quota_outcome_imports i USING (import_id) WHERE i.file_name = 'large.csv'"
    )
    assert total == ROWS * (ROWS - 1) // 2 + ROWS / 4
    assert await conn.fetchval("SELECT count(*) FROM quota_outcome_drafts") == 0
