"""Counts the test cases of `bazel test`, which ran once or, in part, twice.

usage: count_cases.py EVENTS STATUS [EVENTS STATUS LOGS]
       count_cases.py --failed EVENTS LOGS
       count_cases.py --times EVENTS

EVENTS is a build event file and STATUS Bazel's exit status. The second pair is
of the run that repeated the failed tests; LOGS has their first logs.

Reads the test.xml of every test that ran or was cached. Prints the cases that
were skipped (with the reason) and that failed, the targets that passed only the
second time, and last `N passed, N failed`, with `, N skipped` if ATOLL_WITHOUT
names tools that could not be had (run.sh).
Exits 0 only if bazel did, at least one case passed, and none failed.

--failed copies the logs of the failed tests to LOGS and prints their targets. A
target that does not build is none of them.

--times prints the ten slowest tests, each with its slowest case, and the build's
critical path. A cached test's time is that of the run that made its result.
"""

import base64
import json
import os
import shutil
import sys
import urllib.parse
import xml.etree.ElementTree


def read_events(path):
    with open(path, encoding='utf-8') as file:
        for line in file:
            if line.strip():
                yield json.loads(line)


def output_path(result, name):
    for output in result.get('testActionOutput', []):
        if output.get('name') == name:
            return urllib.parse.unquote(
                urllib.parse.urlparse(output.get('uri', '')).path)
    return ''


def results_of(events):
    """{(label, shard, run): the last test result}."""
    results = {}
    for event in events:
        if 'testResult' in event:
            key = event['id']['testResult']
            results[(key['label'], key.get('shard'), key.get('run'))] = (
                event['testResult'])
    return results


def has_passed(result):
    return result.get('status') in ('PASSED', 'FLAKY')


def log_in(folder, label, shard, run):
    """Where the first log of a failed test is kept."""
    name = label.lstrip('/').replace('/', '_').replace(':', '_')
    return os.path.join(folder, '%s.%s.%s.log' % (name, shard, run))


def keep_failed(events, folder):
    """Copies the logs of failed tests to `folder`; returns their labels."""
    labels = set()
    for key, result in results_of(events).items():
        if has_passed(result):
            continue
        labels.add(key[0])
        os.makedirs(folder, exist_ok=True)
        log = output_path(result, 'test.log')
        if os.path.exists(log):
            shutil.copyfile(log, log_in(folder, *key))
    return sorted(labels)


def flaky_lines(first, again, folder):
    """A line for each target of `again` whose tests have all passed now."""
    labels = {key[0] for key in again} - {
        key[0] for key, result in again.items() if not has_passed(result)}
    for label in sorted(labels):
        logs = [log_in(folder, *key) for key in sorted(first, key=str)
                if key[0] == label and not has_passed(first[key])]
        yield 'FLAKY %s: first log %s' % (label, ' '.join(logs))


PASSED, FAILED, SKIPPED = 'passed', 'failed', 'skipped'


def cases_of(path):
    """Yields (name, outcome) for each case in a JUnit file.

    The name of a skipped case ends with the reason, if the file has one.
    """
    root = xml.etree.ElementTree.parse(path).getroot()
    for case in root.iter('testcase'):
        if case.get('status') == 'notrun':
            continue
        name = '%s.%s' % (case.get('classname', ''), case.get('name', ''))
        skipped = case.find('skipped')
        if skipped is not None:
            reason = skipped.get('message', '')
            yield name + (': ' + reason if reason else ''), SKIPPED
        elif case.find('failure') is None and case.find('error') is None:
            yield name, PASSED
        else:
            yield name, FAILED


def count(events, again=()):
    """Returns (passed, names of failed cases, names of skipped cases).

    The events of `again` are of tests that ran a second time: these count.
    """
    passed, failed, skipped = 0, [], []
    tests = set()
    for event in [*events, *again]:
        identity = event['id']
        if 'testSize' in event.get('configured', {}):
            tests.add(identity['targetConfigured']['label'])
        elif event.get('aborted', {}).get('reason') == 'SKIPPED':
            label = identity.get('targetCompleted', {}).get('label')
            if label in tests:
                skipped.append(label + ': a library or toolkit that it needs '
                               'is not on this machine')
        elif 'completed' in event and not event['completed'].get('success'):
            failed.append('build of ' + identity['targetCompleted']['label'])
    results = {**results_of(events), **results_of(again)}
    for (label, _, _), result in sorted(results.items(), key=str):
        path = output_path(result, 'test.xml')
        cases = list(cases_of(path)) if os.path.exists(path) else []
        ok = has_passed(result)
        bad = [name for name, outcome in cases if outcome == FAILED]
        passed += sum(outcome == PASSED for _, outcome in cases)
        skipped += ['%s: %s' % (label, name) for name, outcome in cases
                    if outcome == SKIPPED]
        if ok and not cases:
            passed += 1
        if not ok and not bad:
            bad = [result.get('status', 'FAILED').lower()]
        failed += ['%s: %s' % (label, name) for name in bad]
    # A target whose test failed is reported by its cases, not again as a build.
    labels = {name.split(': ')[0] for name in failed}
    failed = [
        name for name in failed if not name.startswith('build of ') or
        name[len('build of '):] not in labels
    ]
    return passed, failed, skipped


def report(events, status, again, again_status, logs, without):
    """Prints what main() prints; returns the exit code."""
    passed, failed, skipped = count(events, again)
    if again and status == _TESTS_FAILED:
        status = again_status
    if status != 0 and not failed:
        failed = ['bazel ended with %d' % status]
    for name in skipped:
        print('SKIPPED ' + name)
    for name in failed:
        print('FAILED ' + name)
    flaky = list(flaky_lines(results_of(events), results_of(again), logs))
    for line in flaky:
        print(line)
    if flaky:
        print('%d flaky: passed only the second time, alone' % len(flaky))
    last = '%d passed, %d failed' % (passed, len(failed))
    if without:
        last += ', %d skipped' % len(skipped)
    elif skipped:
        print('%d skipped: this machine lacks what they need' % len(skipped))
    print(last, flush=True)
    return 0 if passed and not failed and status == 0 else 1


def slowest_case(path):
    """'NAME SECONDS s' of a JUnit file's slowest case; empty without one."""
    if not os.path.exists(path):
        return ''
    root = xml.etree.ElementTree.parse(path).getroot()
    times = [(float(case.get('time') or 0), '%s.%s' % (
        case.get('classname', ''), case.get('name', '')))
             for case in root.iter('testcase')]
    return '%s %.1f s' % max(times)[::-1] if times else ''


def time_lines(events):
    """The ten slowest tests and the critical path."""
    results = results_of(events)
    sharded = {label for label, shard, _ in results if shard and shard > 1}
    times = []
    for (label, shard, _), result in results.items():
        name = '%s (shard %d)' % (label, shard) if label in sharded else label
        seconds = int(result.get('testAttemptDurationMillis', 0)) / 1000
        times.append((seconds, name, result))
    yield 'The ten slowest tests:'
    for seconds, name, result in sorted(
            times, key=lambda time: time[:2])[-10:][::-1]:
        cached = result.get('cachedLocally') or result.get(
            'executionInfo', {}).get('cachedRemotely')
        yield '%7.1f s %s%s' % (seconds, name, ', cached' if cached else '')
        case = slowest_case(output_path(result, 'test.xml'))
        if case:
            yield '            ' + case
    for event in events:
        for log in event.get('buildToolLogs', {}).get('log', []):
            if log.get('name') == 'critical path':
                yield base64.b64decode(log['contents']).decode().rstrip()


# Bazel's exit status if everything was built and a test failed.
_TESTS_FAILED = 3


def main():
    arguments = sys.argv[1:]
    if arguments[0] == '--failed':
        print('\n'.join(keep_failed(read_events(arguments[1]), arguments[2])))
        return
    if arguments[0] == '--times':
        for line in time_lines(list(read_events(arguments[1]))):
            print(line)
        return
    events, again, again_status, logs = [], [], 0, ''
    try:
        events = list(read_events(arguments[0]))
        if len(arguments) > 2:
            again_status, logs = int(arguments[3]), arguments[4]
            again = list(read_events(arguments[2]))
    except (OSError, ValueError) as error:
        print('no build events: %s' % error)
    sys.exit(report(events, int(arguments[1]), again, again_status, logs,
                    os.environ.get('ATOLL_WITHOUT', '')))


if __name__ == '__main__':
    main()
