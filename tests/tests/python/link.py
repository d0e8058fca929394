"""What a test says to a program in Python, and hears from it: lines through standard input, a socket."""

import os
import sys


def say(line):
    """Tells the test something."""
    data = (str(line) + "\n").encode()
    while data:
        data = data[os.write(0, data):]


def hear():
    """What the test says next; ends the program when it wants nothing any more."""
    line = sys.stdin.readline()
    if not line:
        sys.exit()
    return line.rstrip("\n")
