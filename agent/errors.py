"""What ends a command with one sentence and no traceback."""

import click


class InputError(click.ClickException):
    """Wrong usage, settings or input: exit code 2."""

    exit_code = 2


class RunError(click.ClickException):
    """A failure at run time: exit code 1."""

    exit_code = 1
