"""People meet one name for one thing: `status` and alerts agree."""

from __future__ import annotations

import re

from jinja2 import Environment, FileSystemLoader

from worker.assets import Assets
from worker.status import dimension_words

DIMENSION = re.compile(r"'((?:daily|monthly)_[a-z_]+)'")
PERIODS = {"daily": "day", "monthly": "month"}


def test_status_and_alerts_name_a_cap_alike() -> None:
    assets = Assets()
    dimensions = set(DIMENSION.findall(assets.read("sql/queries/status.sql")))
    assert len(dimensions) == 8
    templates = Environment(loader=FileSystemLoader(assets.path("templates")), autoescape=True)
    words = templates.get_template("labels.en.j2").make_module()
    keys = {d: f"{PERIODS[d.partition('_')[0]]}_{d.partition('_')[2]}" for d in dimensions}
    assert {d: words.labels[keys[d]] for d in dimensions} == {
        d: dimension_words(d) for d in dimensions
    }
    assert set(words.labels) == set(words.short_labels) == set(keys.values())
