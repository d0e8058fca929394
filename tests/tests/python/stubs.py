"""Whether the stub says what is there, no more and no less."""

import ast
import inspect
import sys

import tensorferry
from link import say

with open(sys.argv[1]) as file:
    tree = ast.parse(file.read())


def names(body):
    """What is defined there, with the names of the parameters of functions."""
    found = {}
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            arguments = node.args
            found[node.name] = [a.arg for a in arguments.args + arguments.kwonlyargs if a.arg not in ("self", "cls")]
        elif isinstance(node, ast.AnnAssign):
            found[node.target.id] = None
    return found


def check(owner, where, found):
    for name, parameters in found.items():
        there = getattr(owner, name)
        try:
            seen = list(inspect.signature(there).parameters.values())
        except (TypeError, ValueError):
            continue  # a property, a constructor
        if parameters is None or name.startswith("__"):
            continue
        assert [p.name for p in seen if p.name != "self"] == parameters, f"{where}.{name}: {seen}"


def all_names(node):
    """What is defined in a class of the stub, and in its bases there."""
    found = names(node.body)
    for base in node.bases:
        if isinstance(base, ast.Name) and base.id in classes:
            found |= all_names(classes[base.id])
    return found


classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
check(tensorferry, "tensorferry", names(tree.body))
for name, node in classes.items():
    if name.startswith("_"):
        continue
    found = all_names(node)
    found.pop("__buffer__", None)  # known to Python 3.12
    check(getattr(tensorferry, name), name, found)
    missing = {n for n in vars(getattr(tensorferry, name)) if not n.startswith("_")} - found.keys()
    assert not missing, f"the stub has no {missing} of {name}"
public = {name for name in dir(tensorferry) if not name.startswith("_")}
assert public == {n for n in classes.keys() | names(tree.body).keys() if not n.startswith("_")}, public
say("done")
