"""The one exception that means: the user can mend this, and the message says how."""


class UserError(Exception):
    """Bad input. The message is one clear sentence; the command line prints it without a traceback.

    Not a `ValueError`: the parser of options would catch that, and wrap it in words of its own.
    """
