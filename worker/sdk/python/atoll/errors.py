"""The errors of this package."""

from __future__ import annotations


class Error(Exception):
    """A failure, described for a person and for a program.

    Attributes:
      message: One sentence: the fault, with the value.
      code: Name of a canonical gRPC code, for example "INVALID_ARGUMENT".
      reason: UPPER_SNAKE_CASE; tells errors of one code apart. The code, if
        the sender gave none.
      hint: The remedy; may be empty.
    """

    def __init__(self, message: str, reason: str = "", hint: str = "",
                 code: str = "UNKNOWN"):
        super().__init__(message)
        self.message = message
        self.code = code
        self.reason = reason or code
        self.hint = hint

    def __str__(self) -> str:
        text = "%s (%s)" % (self.message, self.reason)
        return "%s\n%s" % (text, self.hint) if self.hint else text


class ConnectionLost(Error):
    """The exchange has closed the connection, or has died.

    The package handles this error itself: it connects again.
    """

    def __init__(self, message: str):
        super().__init__(message, reason="CONNECTION_LOST", code="UNAVAILABLE")


class RunEnded(Exception):
    """The run has ended: an attached optimizer takes no further step.

    The model has the run's final parameters. Not an Error: nothing has failed.
    """
