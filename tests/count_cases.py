"""Counts the test cases of one `bazel test`.

usage: count_cases.py BUILD_EVENTS.json EXIT_STATUS

Reads the build event file, finds the test.xml of every test that ran or was
cached, prints the failed cases and, last, `N passed, N failed`. Exits 0 only if
bazel did, at least one case passed, and none failed.
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


def cases_of(path):
    """Yields (name, failed) for each case in a JUnit file."""
    root = xml.etree.ElementTree.parse(path).getroot()
    for case in root.iter('testcase'):
        if case.get('status') == 'notrun' or case.find('skipped') is not None:
            continue
        name = '%s.%s' % (case.get('classname', ''), case.get('name', ''))
        failed = case.find('failure') is not None
        yield name, failed or case.find('error') is not None


def count(events):
    """Returns (passed, names of failed cases)."""
    passed, failed = 0, []
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
        names = list(cases_of(path)) if os.path.exists(path) else []
        ok = result.get('status') in ('PASSED', 'FLAKY')
        bad = [name for name, case_failed in names if case_failed]
        passed += len(names) - len(bad)
        if ok and not names:
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
    return passed, failed


def main():
    status = int(sys.argv[2])
    try:
        passed, failed = count(read_events(sys.argv[1]))
    except (OSError, ValueError) as error:
        print('no build events: %s' % error)
        passed, failed = 0, []
    if status != 0 and not failed:
        failed = ['bazel ended with %d' % status]
    for name in failed:
        print('FAILED ' + name)
    print('%d passed, %d failed' % (passed, len(failed)), flush=True)
    sys.exit(0 if passed and not failed and status == 0 else 1)


if __name__ == '__main__':
    main()
