"""Has an end of a queue with leases, and does with it what it is told."""

import sys
import threading

import tensorferry
from link import hear, say

connection = tensorferry.connect(sys.argv[1], timeout=60)
end = connection.recv()
say("ready")


def outcome_of(call):
    """What it comes to."""
    try:
        call()
        return "done"
    except (tensorferry.Closed, KeyboardInterrupt) as error:
        return type(error).__name__


def all_of_them():
    for job in end.leases():
        with job:
            say(job.value)


def wait_for_one():
    say("waiting")
    end.get_leased()


while True:
    command, _, argument = hear().partition(": ")
    if command == "lease":
        job = end.get_leased(timeout=60)
        say(f"{job.value} {job.deliveries}")
    elif command == "ack":
        job.ack()
        say("acknowledged")
    elif command == "fail":
        with end.get_leased(timeout=60) as job:
            say(f"{job.value} {job.deliveries}")
            raise ValueError("the work failed")
    elif command == "all":
        say(outcome_of(all_of_them))
    elif command == "put":
        end.put(argument)
        say("put")
    elif command == "join":
        say("waiting")
        say(outcome_of(end.join))
    elif command == "wait in a thread":
        threading.Thread(target=wait_for_one, daemon=True).start()
    else:
        break
