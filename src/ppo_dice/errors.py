"""The one exception that means: the user can mend this, and the message says how."""


class UserError(ValueError):
    """Bad input. The message is one clear sentence; the command line prints it without a traceback."""
