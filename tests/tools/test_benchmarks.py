import ast
import inspect
from inspect import Parameter
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def parse(name):
    return ast.parse((BENCHMARKS / f"{name}.py").read_text())


def signature_of(function):
    """Makes the signature of a function that was parsed: importing it would load PyTorch."""
    args = function.args
    positional = [*args.posonlyargs, *args.args]
    defaults = [Parameter.empty] * (len(positional) - len(args.defaults)) + args.defaults
    parameters = [
        Parameter(arg.arg, Parameter.POSITIONAL_OR_KEYWORD, default=default)
        for arg, default in zip(positional, defaults, strict=True)
    ]
    if args.vararg:
        parameters.append(Parameter(args.vararg.arg, Parameter.VAR_POSITIONAL))
    for arg, default in zip(args.kwonlyargs, args.kw_defaults, strict=True):
        default = Parameter.empty if default is None else default
        parameters.append(Parameter(arg.arg, Parameter.KEYWORD_ONLY, default=default))
    if args.kwarg:
        parameters.append(Parameter(args.kwarg.arg, Parameter.VAR_KEYWORD))
    return inspect.Signature(parameters)


def functions_of(tree):
    return {node.name: signature_of(node) for node in tree.body if type(node) is ast.FunctionDef}


NAMES = sorted(path.stem for path in BENCHMARKS.glob("*.py"))


@pytest.mark.parametrize("name", NAMES)
def test_benchmarks_call_each_others_functions_with_their_arguments(name):
    tree = parse(name)
    known = functions_of(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module in NAMES:
            others = functions_of(parse(node.module))
            known |= {a.asname or a.name: others[a.name] for a in node.names if a.name in others}
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            continue
        is_unpacked = any(isinstance(arg, ast.Starred) for arg in call.args)
        if call.func.id not in known or is_unpacked or any(k.arg is None for k in call.keywords):
            continue
        try:
            known[call.func.id].bind(*call.args, **{k.arg: k.value for k in call.keywords})
        except TypeError as error:
            pytest.fail(f"{name}.py:{call.lineno}: {call.func.id}: {error}")
