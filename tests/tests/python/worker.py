"""Takes what comes through a queue that it was sent, until it is told otherwise."""

import sys

import tensorferry
from link import hear, say

connection = tensorferry.connect(sys.argv[1], timeout=60)
tasks, results = connection.recv()
say(f"{tasks!r} {results!r}")
while True:
    command = hear()
    if command == "get":
        try:
            say("waiting")
            task = tasks.get()
            results.put([task["n"] + 1, task["data"]])
            say("put")
        except tensorferry.PeerDied:
            say("PeerDied")
        except tensorferry.Closed:
            say("Closed")
        except KeyboardInterrupt:
            say("KeyboardInterrupt")
    elif command == "refused":
        try:
            say(connection.recv())
        except ValueError as error:
            say(error)
    elif command == "hold":
        held = tasks.get()
        say(len(held["data"]))
    elif command == "wrong":
        results.put("a text instead of a pair")
        say("put")
    else:
        break
