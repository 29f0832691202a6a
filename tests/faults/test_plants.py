"""The planted faults fit the code, and each way to write one changes what it says."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.faults.__main__ import BROKEN, EXPLAINED, LIVED, NOTICED, is_good, summary, verdict_of
from tests.faults.changes import changed
from tests.faults.code import ROOT, Code
from tests.faults.copies import Run
from tests.faults.plants import FOLDER, Fault, all_faults, read_faults
from tests.faults.since import faults_since
from tests.faults.snippets import MisfitError

CODE = '''
@cache
def f(names, limit=3):
    """Return log(names)."""
    log(names)
    if limit and not names:
        return [limit, 0]
    with lock:
        send(names, at=limit + 1)
    try:
        put({"id": 1, "size": limit})
    except KeyError:
        pass
    return [name for name in names if name > limit]
'''
TRY = CODE[CODE.index("    try") : CODE.index("    return [name")]
CHANGES = [
    ("never limit and not names", "if limit and not names", "if False"),
    ("always name>limit", "if name > limit", "if True"),
    ("not name > limit", "if name > limit", "if not name > limit"),
    ("not names -> names", "not names", "names"),
    ("drop not names", "limit and not names", "limit"),
    ("drop name > limit", " if name > limit", ""),
    ("drop 0", "[limit, 0]", "[limit]"),
    ("drop at=limit + 1", ", at=limit + 1", ""),
    ("drop 1 #1", "limit + 1", "limit"),
    ('drop "size": limit', ', "size": limit', ""),
    ("drop cache", "@cache\n", ""),
    ("drop log(names)", "    log(names)\n", ""),
    ("drop return [limit, 0]", "return [limit, 0]", "pass"),
    ("unwrap with lock:", "    with lock:\n        send", "    send"),
    ("unwrap try:", TRY, "    put({'id': 1, 'size': limit})\n"),
    ("limit #2 -> 7", "[limit, 0]", "[7, 0]"),
    ('"id": 1 -> "key": 1', '"id"', '"key"'),
    ("at=limit + 1 -> at=limit", "limit + 1", "limit"),
    ("except KeyError: -> except OSError:", "KeyError", "OSError"),
    ("with lock: -> if lock:", "with lock", "if lock"),
    ("return [limit, 0] -> log(1); return 2", "return [limit, 0]", "log(1); return 2"),
]


def function(code: str) -> ast.stmt:
    """Return the first statement of some code."""
    return ast.parse(code).body[0]


@pytest.mark.parametrize(("change", "old", "new"), CHANGES, ids=[each[0] for each in CHANGES])
def test_a_change_is_made_where_the_code_stands_and_nowhere_else(
    change: str, old: str, new: str
) -> None:
    assert CODE.count(old) == 1
    (made,) = changed(function(CODE), change)
    assert ast.unparse(made) == ast.unparse(function(CODE.replace(old, new)))


def test_statements_are_moved_before_and_after_others() -> None:
    code = function("def f():\n    a()\n    if b:\n        c()\n    d()")
    (later,) = changed(code, "move a() after if b:")
    (earlier,) = changed(code, "move d() before a()")
    assert ast.unparse(later) == "def f():\n    if b:\n        c()\n    a()\n    d()"
    assert ast.unparse(earlier) == "def f():\n    d()\n    a()\n    if b:\n        c()"


def test_what_does_not_stand_there_once_or_is_no_code_is_refused() -> None:
    for change in ("never limit", "drop (", "nothing", "drop names", "drop missing"):
        with pytest.raises(MisfitError):
            changed(function(CODE), change)


def code_of(folder: Path, **modules: str) -> Code:
    """Return the code of a product with these modules."""
    for name, text in modules.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_suffix(".py").write_text(text)
    return Code(folder)


def test_a_function_that_moves_to_another_module_is_found_there(tmp_path: Path) -> None:
    code = code_of(
        tmp_path, shared__moved="class Log:\n    def end(self):\n        return  1 # one\n"
    )
    path, text = Fault("log", "Log.end", "1 -> 2").planted(code)
    assert path == tmp_path / "shared/moved.py"
    assert text == "class Log:\n    def end(self):\n        return 2\n"


def test_of_functions_of_one_name_the_one_that_the_change_fits_is_meant(tmp_path: Path) -> None:
    one = "LIMIT = 1\n\ndef f():\n    return g(1)\n"
    code = code_of(tmp_path, shared__log__one=one, cli__one=one.replace("g(1)", "h(1)"))
    assert code.place("f", "g(1) -> 2").path.match("log/one.py")
    assert code.place("log.one:f", "1 -> 2").path.match("log/one.py")
    assert code.place("log.one:LIMIT", "1 -> 2").path.match("log/one.py")
    with pytest.raises(MisfitError, match="several"):
        code.place("f", "1 -> 2")
    with pytest.raises(MisfitError, match="no such function"):
        code.place("other:f", "1 -> 2")
    with pytest.raises(MisfitError, match="none"):
        code.place("f", "2 -> 1")


def test_a_test_is_found_by_its_name_in_whatever_file_it_is(tmp_path: Path) -> None:
    both = "def test_both():\n    pass\n"
    group = "class TestLog:\n    def test_end(self):\n        pass\n\n\n"
    machine = "TestHistory = Machine.TestCase\n"
    code = code_of(tmp_path, tests__one__test_log=group + both, tests__test_log=machine + both)
    assert code.test("TestHistory") == "tests/test_log.py::TestHistory"
    assert code.test("test_end[a-b]") == "tests/one/test_log.py::TestLog::test_end[a-b]"
    assert code.test("one.test_log:test_both") == "tests/one/test_log.py::test_both"
    for name in ("test_both", "test_log:test_both", "test_gone", "tests/gone.py"):
        with pytest.raises(MisfitError):
            code.test(name)


def test_a_function_or_test_that_is_listed_twice_is_refused() -> None:
    for text in ("f: {a: 1 -> 2}\nf: {b: 1 -> 3}", "f: {a: 1 -> 2, a: 1 -> 3}", "- f"):
        with pytest.raises(MisfitError):
            list(read_faults("area", text))


def test_each_fault_changes_its_function_names_tests_and_is_no_broken_code(tmp_path: Path) -> None:
    code, misfits = Code(ROOT), []
    faults = all_faults()
    for number, fault in enumerate(faults):
        try:
            path, text = fault.planted(code)
            for test in fault.tests:
                code.test(test)
        except MisfitError as error:
            misfits.append(f"{fault}: {error}")
            continue
        if path.suffix == ".py":
            (tmp_path / f"fault_{number}.py").write_text(f"# {fault}\n{text}")
    misfits += [f"{fault} is there twice" for fault, n in Counter(faults).items() if n > 1]
    assert not misfits, "\n".join(misfits)
    undefined = ["--isolated", "--no-cache", "--select", "F821,F823", str(tmp_path)]
    found = subprocess.run(
        [sys.executable, "-m", "ruff", "check", *undefined],
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stdout


def verdicts(**counts: int) -> dict[Fault, str]:
    """Return as many faults of each verdict."""
    return {
        Fault(verdict, "f", f"drop {number}"): verdict
        for verdict, count in counts.items()
        for number in range(count)
    }


def test_one_fault_that_lived_or_was_broken_fails_the_whole() -> None:
    assert is_good(verdicts(noticed=95, explained=5), whole=True)
    assert not is_good(verdicts(noticed=99, lived=1), whole=True)
    assert not is_good(verdicts(noticed=99, broken=1), whole=True)


def test_explanations_do_not_take_the_place_of_tests() -> None:
    assert not is_good(verdicts(noticed=94, explained=6), whole=True)
    assert is_good(verdicts(explained=1), whole=False)


def test_the_summary_names_what_was_not_noticed_and_counts_the_rest() -> None:
    lines = list(summary(verdicts(**{NOTICED: 3, LIVED: 1, BROKEN: 0, EXPLAINED: 1})))
    assert lines == ["lived lived: f: drop 0", "explained explained: f: drop 0", "3 of 5 noticed"]


def test_only_a_failed_or_endless_test_notices_a_fault() -> None:
    ends = {0: LIVED, 1: NOTICED, 2: BROKEN, 4: BROKEN, -11: BROKEN}
    assert {code: verdict_of(Run(code, stopped=False, failed="")) for code in ends} == ends
    assert verdict_of(Run(-9, stopped=True, failed="")) == NOTICED


def test_a_change_concerns_the_faults_of_its_functions_and_tests(tmp_path: Path) -> None:
    product = "def f():\n    return 1\n\ndef g():\n    return 1\n\ndef h():\n    return 1\n"
    tests = {f"tests__test_{name}": f"def test_{name}():\n    pass\n" for name in "fgh"}
    faults = [Fault("area", name, "1 -> 2", (f"test_{name}",)) for name in "fgh"]
    listed = tmp_path / "then" / FOLDER / "area.yaml"
    listed.parent.mkdir(parents=True)
    listed.write_text("".join(f"{f.target}: {{{f.tests[0]}: {f.change}}}\n" for f in faults))
    then = code_of(tmp_path / "then", shared__code=product, **tests)
    git = ["git", "-C", str(then.root), "-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "-m", "then"]):
        subprocess.run([*git, *command], check=True)
    tests["tests__test_g"] += "    assert 1\n"
    now = code_of(
        then.root, shared__code=f"# new\n{product}".replace("h():\n    ", "h(): "), **tests
    )
    new = Fault("area", "h", "drop 1", ("test_h",))
    found = faults_since("HEAD", now, [*faults, new], tmp_path / "before")
    assert found == [faults[1], new]
