"""`python -m docs.playground` writes the playground, one HTML file."""

from argparse import ArgumentParser
from pathlib import Path

from docs.playground.build import BuildError, build


def main(arguments: list[str] | None = None) -> None:
    """Build the page where the command line says.

    Args:
        arguments: of the command; None for those of the process.

    Raises:
        SystemExit: with a message that starts with "error: ", where the page cannot be built or written.
    """
    parser = ArgumentParser(prog="python -m docs.playground", description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("outputs/playground.html"), help="default: %(default)s")
    output = parser.parse_args(arguments).output
    try:
        build(output)
    except BuildError as error:
        raise SystemExit(f"error: {error}") from error
    except OSError as error:
        raise SystemExit(f"error: {error.filename}: {error.strerror}; see that it can be written") from error
    print(f"{output}: {output.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
