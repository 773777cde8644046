"""x."""


def checks(report, server):
    pass
