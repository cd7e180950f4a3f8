"""Pages as PNGs, by headless Chromium: `PYTHONPATH=tests python -m pictures.shots FOLDER [GLOB]`.

Each page at a desktop's and a phone's width, in strips that can be looked at one by one.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image, ImageChops

WIDTHS = {"desktop": 1000, "phone": 390}
TALLEST = 16_000
STRIP = 2_600
WAIT_SECONDS = 120.0
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--hide-scrollbars",
)  # fmt: skip
# A window has a least width, a frame has none.
FRAME = (
    '<!DOCTYPE html><body style="margin:0;background:#fff"><iframe src="{page}" scrolling="no"'
    ' style="border:0;display:block;width:{width}px;height:{height}px"></iframe></body>'
)


def shoot(page: Path, width: int) -> list[Image.Image]:
    """The whole page at this width, without the blank below it, in strips."""
    with tempfile.TemporaryDirectory() as folder:
        frame, shot = Path(folder, "frame.html"), Path(folder, "shot.png")
        frame.write_text(FRAME.format(page=page.resolve().as_uri(), width=width, height=TALLEST))
        chromium = os.environ.get("CHROMIUM", "chromium")
        subprocess.run(
            [chromium, *FLAGS, f"--user-data-dir={folder}/profile", f"--screenshot={shot}",
             f"--window-size={max(width, 600)},{TALLEST}", frame.as_uri()],
            check=True, capture_output=True, timeout=WAIT_SECONDS,
        )  # fmt: skip
        whole = (
            Image.open(io.BytesIO(shot.read_bytes())).convert("RGB").crop((0, 0, width, TALLEST))
        )
    blank = Image.new("RGB", whole.size, whole.getpixel((0, TALLEST - 1)))
    box = ImageChops.difference(whole, blank).getbbox()
    bottom = TALLEST if box is None else box[3]
    return [
        whole.crop((0, top, width, min(top + STRIP, bottom))) for top in range(0, bottom, STRIP)
    ]


def main(folder: Path, pattern: str) -> None:
    """A PNG for each strip, beside the page."""
    for page in sorted(folder.glob(pattern)):
        for name, width in WIDTHS.items():
            for number, strip in enumerate(shoot(page, width), 1):
                strip.save(page.with_suffix(f".{name}-{number}.png"))


if __name__ == "__main__":
    if len(sys.argv) not in {2, 3}:
        sys.exit("usage: python -m pictures.shots FOLDER [GLOB]")
    main(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) == 3 else "*.html")
