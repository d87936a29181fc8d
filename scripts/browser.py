"""Make sure that the tests of the report find a Chromium and its driver: those that are here, else Debian's."""

from __future__ import annotations

import shutil
import sys

from install import apt_install

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
DEBIAN_PACKAGES = ("chromium", "chromium-driver")


def browser_is_here() -> bool:
    """Whether there is a browser, and a driver for it."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    driver = shutil.which("chromedriver")
    if browser is None or driver is None:
        return False
    print(f"Browser for the tests: {browser} with {driver}", file=sys.stderr)
    return True


def main() -> int:
    """Look, install, look again."""
    if browser_is_here() or (apt_install(*DEBIAN_PACKAGES) and browser_is_here()):
        return 0
    print(
        "No Chromium could be installed. Install one with its chromedriver (Debian: "
        f"apt install {' '.join(DEBIAN_PACKAGES)}), then run this again.",
        file=sys.stderr,
    )
    return 3


if __name__ == "__main__":
    sys.exit(main())
