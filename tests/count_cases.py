"""Counts the test cases of one `bazel test`.

usage: count_cases.py BUILD_EVENTS.json EXIT_STATUS

Reads the build event file, finds the test.xml of every test that ran or was
cached, prints the cases that were skipped (with the reason) and that failed and,
last, `N passed, N failed`. Exits 0 only if bazel did, at least one case passed,
and none failed.
"""

import json
import os
import sys
import urllib.parse
import xml.etree.ElementTree


def read_events(path):
    with open(path, encoding='utf-8') as file:
        for line in file:
            if line.strip():
                yield json.loads(line)


def xml_path(result):
    for output in result.get('testActionOutput', []):
        if output.get('name') == 'test.xml':
            return urllib.parse.unquote(
                urllib.parse.urlparse(output.get('uri', '')).path)
    return ''


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


def count(events):
    """Returns (passed, names of failed cases, names of skipped cases)."""
    passed, failed, skipped = 0, [], []
    last_results = {}
    for event in events:
        if 'testResult' in event:
            key = event['id']['testResult']
            last_results[(key['label'], key.get('shard'), key.get('run'))] = (
                event['testResult'])
        elif 'completed' in event and not event['completed'].get('success'):
            failed.append('build of ' +
                          event['id']['targetCompleted']['label'])
    for (label, _, _), result in sorted(last_results.items(), key=str):
        path = xml_path(result)
        cases = list(cases_of(path)) if os.path.exists(path) else []
        ok = result.get('status') in ('PASSED', 'FLAKY')
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


def main():
    status = int(sys.argv[2])
    try:
        passed, failed, skipped = count(read_events(sys.argv[1]))
    except (OSError, ValueError) as error:
        print('no build events: %s' % error)
        passed, failed, skipped = 0, [], []
    if status != 0 and not failed:
        failed = ['bazel ended with %d' % status]
    for name in skipped:
        print('SKIPPED ' + name)
    for name in failed:
        print('FAILED ' + name)
    print('%d passed, %d failed' % (passed, len(failed)), flush=True)
    sys.exit(0 if passed and not failed and status == 0 else 1)


if __name__ == '__main__':
    main()
