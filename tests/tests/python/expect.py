"""What has to fail."""


def raises(kind, call, text):
    """`call` fails with this kind of exception, or one of these, and `text` in it."""
    try:
        call()
    except kind as error:
        assert text in str(error), error
    else:
        raise AssertionError(f"no {kind}")
