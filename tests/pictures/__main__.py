"""Pages to look at in a browser: `PYTHONPATH=tests python -m pictures FOLDER`.

Each mail as it is sent, each Feishu card as a look-alike of what the client draws, each report.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pictures.cards import card_page
from pictures.reports import write_reports
from worker.assets import Assets
from worker.models import OutboxMessage
from worker.notifiers.feishu_card import card_bodies, worst
from worker.rendering import LANGUAGES, Renderer
from worker.samples import AT, DEPARTMENT, DIGEST, SAMPLES, TENANT, sample_facts


def messages(kind: str, samples: str, language: str) -> list[OutboxMessage]:
    """The samples as the outbox has them."""
    return [
        OutboxMessage(
            message_id=number,
            kind=f"{facts['subject_kind']}-warn",
            channel="ops",
            severity=facts["severity"],
            locale=language,
            facts=json.dumps(facts),
            attempt=1,
            dedupe_key=f"qw-{number}",
            created_at=AT,
        )
        for number, facts in enumerate(sample_facts(kind, samples), start=1)
    ]


def main(folder: Path) -> None:
    """Write every page; those that are there are written anew."""
    folder.mkdir(parents=True, exist_ok=True)
    write_reports(folder)
    renderer = Renderer(Assets())
    for kind in (TENANT, DEPARTMENT, DIGEST):
        for samples in SAMPLES:
            for language in LANGUAGES:
                sent = messages(kind, samples, language)

                def part(family: str, part: str, sent: list[OutboxMessage] = sent) -> str:
                    if len(sent) > 1:
                        return renderer.render_digest(sent, family, part)
                    return renderer.render(sent[0], family, part)

                bodies = card_bodies(
                    title=part("feishu", "title"),
                    markdown=part("feishu", "md"),
                    severity=worst(one.severity for one in sent),
                    keyword=None,
                    secret=None,
                    timestamp_seconds=0,
                )
                cards = [json.loads(body)["card"] for body in bodies]
                name = f"{kind}.{samples}.{language}.html"
                (folder / f"mail.{name}").write_text(part("email", "html"), encoding="utf-8")
                (folder / f"card.{name}").write_text(card_page(cards), encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m pictures FOLDER")
    main(Path(sys.argv[1]))
