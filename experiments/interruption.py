"""Ctrl-C and SIGTERM end a command with one line and the status 130 or 143, at any moment and without a traceback."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

AT_START = "the same command starts again where this one did"
_received: int | None = None  # the signal that ends this process
_importing = _postponing = False


def listen() -> None:
    """Handle both signals from now on."""
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, _interrupt)
        sys.unraisablehook = _repeat


def _repeat(ignored: "sys.UnraisableHookArgs") -> None:
    """Send the signal again if Python has ignored its KeyboardInterrupt, for example in the finalizer of an object."""
    global _received
    if _received is None or not issubclass(ignored.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(ignored)
        return
    number, _received = _received, None
    threading.Timer(0.1, os.kill, (os.getpid(), number)).start()


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Raise a KeyboardInterrupt. During imports, or at the second interrupt, end the process at once."""
    global _received
    if _postponing and _received is None:
        _received = number
        return
    if _importing or _received is not None:  # some modules read any error as a missing package
        if _received is None:
            os.write(2, f"interrupted; {AT_START}\n".encode())
        os._exit(128 + number)
    _received = number
    raise KeyboardInterrupt


def listen_alone() -> None:
    """Like `listen`, but child processes ignore Ctrl-C, which a terminal sends to them too."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])  # children inherit the mask

    def take() -> None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
        threading.Event().wait()

    threading.Thread(target=take, daemon=True).start()


@contextmanager
def importing() -> Iterator[None]:
    """Used around imports, while no file or process is open that must be closed."""
    global _importing
    _importing = True
    try:
        yield
    finally:
        _importing = False


@contextmanager
def postponed() -> Iterator[None]:
    """A signal that arrives inside this context ends the process only after it."""
    global _postponing
    _postponing = True
    try:
        yield
    finally:
        _postponing = False
    if _received is not None:
        raise KeyboardInterrupt


@contextmanager
def told(how_it_goes_on: Callable[[], str] = lambda: AT_START) -> Iterator[None]:
    """If one of the signals ends the block, print how to continue, and exit with the signal's status.

    Args:
        how_it_goes_on: returns the end of the printed line; empty if this process prints nothing.
    """
    try:
        yield
    except BaseException as error:  # libraries turn an interrupt into errors and exits of their own
        if _received is None:
            raise
        status = 128 + _received
        if not (isinstance(error, SystemExit) and error.code == status) and (how := how_it_goes_on()):
            print(f"interrupted; {how}", file=sys.stderr)
        raise SystemExit(status) from None
