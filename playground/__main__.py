"""`python -m playground` writes the playground, one HTML file."""

import argparse
import sys
from pathlib import Path

from playground.build import BuildError, build


def main() -> int:
    """Build the page where the command line says."""
    parser = argparse.ArgumentParser(prog="python -m playground", description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("outputs/playground.html"), help="default: %(default)s")
    output = parser.parse_args().output
    try:
        build(output)
    except BuildError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{output}: {output.stat().st_size / 1000:.0f} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
