"""The command line as tests call it."""

from gcr_rl import cli


def gcr(capsys, *words):
    """Exit code, standard output and standard error of one command."""
    code = 0
    try:
        cli.main([str(word) for word in words])
    except SystemExit as stop:
        code = stop.code or 0
    captured = capsys.readouterr()
    return code, captured.out, captured.err
