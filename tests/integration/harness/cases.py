"""Runs test cases, each counted, and writes JUnit XML for Bazel.

Bazel's own Python rules need a toolchain that Debian does not configure, so a
test is a script that ends with `cases.main()`. Cases are unittest methods;
Bazel's sharding (TEST_TOTAL_SHARDS) distributes them one by one. By hand:

    tests/integration/kill_test.py                 all cases
    tests/integration/kill_test.py NAME...         names that contain NAME
"""

import os
import random
import sys
import time
import traceback
import unittest
from xml.sax import saxutils


def seed():
    """The seed of this process's random inputs; printed with the results."""
    return _SEED


_SEED = int(os.environ.get("ATOLL_TEST_SEED", random.SystemRandom().getrandbits(31)))


class _Result(unittest.TestResult):
    def __init__(self):
        super().__init__()
        self.rows = []

    def startTest(self, test):
        super().startTest(test)
        self._start = time.monotonic()
        self._outcome = ("ok", "")
        print("[ RUN  ] %s" % test.id(), flush=True)

    def addError(self, test, err):
        super().addError(test, err)
        self._outcome = ("error", self._text(err, test))

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self._outcome = ("failure", self._text(err, test))

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            text = "%s\n%s" % (subtest._subDescription(), self._text(err))
            before = self._outcome[1]
            self._outcome = ("failure", before + text)

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self._outcome = ("skipped", reason)

    def stopTest(self, test):
        super().stopTest(test)
        seconds = time.monotonic() - self._start
        kind, text = self._outcome
        print("[ %-5s] %s (%.1f s)%s" % (
            {"ok": "OK", "skipped": "SKIP"}.get(kind, "FAIL"), test.id(),
            seconds, "\n" + text if text else ""), flush=True)
        self.rows.append((test.id(), seconds, kind, text))

    @staticmethod
    def _text(err, test=None):
        text = "".join(traceback.format_exception(*err))
        if hasattr(test, "describe_failure"):
            text += "\n" + test.describe_failure()
        return text


def _flatten(suite):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from _flatten(test)
        else:
            yield test


def _write_xml(path, name, rows):
    bad = sum(kind in ("error", "failure") for _, _, kind, _ in rows)
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        '<testsuites><testsuite name=%s tests="%d" failures="%d" errors="0"'
        ' skipped="%d">' % (saxutils.quoteattr(name), len(rows), bad,
                            sum(kind == "skipped" for _, _, kind, _ in rows)),
    ]
    for test_id, seconds, kind, text in rows:
        suite, case = test_id.rsplit(".", 1)
        lines.append("<testcase classname=%s name=%s time=\"%.3f\">" % (
            saxutils.quoteattr(suite), saxutils.quoteattr(case), seconds))
        if kind == "skipped":
            lines.append("<skipped message=%s/>" % saxutils.quoteattr(text))
        elif kind != "ok":
            clean = "".join(c for c in text if c in "\n\t" or c >= " ")
            lines.append("<failure message=%s>%s</failure>" % (
                saxutils.quoteattr(clean.strip().split("\n")[-1][:200]),
                saxutils.escape(clean)))
        lines.append("</testcase>")
    lines.append("</testsuite></testsuites>")
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")


def is_without(tool):
    """Whether tests/run.sh could not get `tool` for the tests."""
    return tool in os.environ.get("ATOLL_WITHOUT", "").split()


def skip_all(reason):
    """Ends a script whose imports fail without a tool: one skipped case."""
    name = os.path.splitext(os.path.basename(sys.argv[0]))[0]
    print("[ SKIP ] %s: %s" % (name, reason))
    if "XML_OUTPUT_FILE" in os.environ:
        _write_xml(os.environ["XML_OUTPUT_FILE"], name,
                   [(name + ".all_cases", 0.0, "skipped", reason)])
    sys.exit(0)


def main():
    """Runs the cases of __main__. Exit status 0: all passed."""
    module = sys.modules["__main__"]
    # Cases go by the name of the script, not by "__main__".
    name = os.path.splitext(os.path.basename(module.__file__))[0]
    tests = list(_flatten(unittest.defaultTestLoader.loadTestsFromModule(module)))
    for test in tests:
        test.id = lambda t=test: "%s.%s.%s" % (
            name, type(t).__name__, t._testMethodName)
    words = sys.argv[1:]
    if words:
        tests = [t for t in tests if any(w in t.id() for w in words)]
    shard_count = int(os.environ.get("TEST_TOTAL_SHARDS", "1"))
    shard = int(os.environ.get("TEST_SHARD_INDEX", "0"))
    if "TEST_SHARD_STATUS_FILE" in os.environ:
        with open(os.environ["TEST_SHARD_STATUS_FILE"], "w"):
            pass
    # Cases of one class share the result of setUpClass; each shard has its own.
    tests = tests[shard::shard_count]
    print("%d cases, seed %d (ATOLL_TEST_SEED repeats it)" % (
        len(tests), seed()), flush=True)
    result = _Result()
    unittest.TestSuite(tests).run(result)
    # A failing setUpClass has no case; it counts as one.
    for test, text in result.errors:
        if isinstance(test, unittest.suite._ErrorHolder):
            result.rows.append(("%s.%s" % (name, test.id().replace(" ", "_")),
                                0.0, "error", text))
            print(text, flush=True)
    if "XML_OUTPUT_FILE" in os.environ:
        _write_xml(os.environ["XML_OUTPUT_FILE"], name, result.rows)
    bad = [row[0] for row in result.rows if row[2] in ("error", "failure")]
    print("%d of %d failed%s" % (len(bad), len(result.rows),
                                 ": " + ", ".join(bad) if bad else ""))
    sys.exit(1 if bad or not result.rows and shard_count == 1 else 0)
