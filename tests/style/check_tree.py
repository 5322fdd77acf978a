"""Finds what the rules of the tree forbid and a program can see.

usage: check_tree.py ROOT

Prints one line a finding, `path:line: what`, and exits 1 if there is any. The
rules are the tables below; each says why in a few words.
"""

import collections
import os
import re
import sys

# Folders that are not ours: Bazel's links, version control.
SKIPPED = re.compile(r'^(bazel-[^/]*|\.git|quickstart-out|test-out|shared)$')

CODE = re.compile(r'\.(h|cc|cu|cuh|inc)$')

# room: (path pattern, includes it must never have).
GRPC = r'<?"?(grpc|grpcpp|grpc\+\+)/|\.grpc\.pb\.h'
ROCKSDB = r'rocksdb/'
CUDA = r'"?<?(cuda|nccl|cublas|cudnn)'
THREADS = r'<(thread|mutex|condition_variable|future|shared_mutex)>'
# A test of a core prints, and shows that what is shared is safe to share.
FOR_TESTS = [THREADS, r'<iostream>']
SHELL_BASE = r'"base/(rpc|io|obs|sync|time|failpoint)/'
Room = collections.namedtuple('Room', 'name path banned why')
ROOMS = [
    Room('core', r'^(coordinator|server|worker)/core/',
         [GRPC, ROCKSDB, CUDA, THREADS, SHELL_BASE, r'<chrono>', r'<fstream>',
          r'<iostream>'], 'a core does no I/O and reads no clock'),
    Room('store', r'^(coordinator|server)/store/', [GRPC, CUDA],
         'a store does not call'),
    Room('kernels', r'^(server/kernels|worker/engine/ops)/',
         [GRPC, ROCKSDB, SHELL_BASE], 'a kernel only computes'),
    Room('service', r'^(coordinator|server)/service/', [ROCKSDB, CUDA],
         'a service holds its store by its interface'),
    Room('client', r'^(coordinator|server)/client/',
         [ROCKSDB, CUDA, r'"(coordinator|server)/(core|store|service)/'],
         'a client knows the protos alone'),
    Room('base', r'^base/', [r'"(coordinator|server|worker|cli|tests)/'],
         'base stands on nothing of ours'),
    Room('coordinator', r'^coordinator/', [r'"(server|worker|cli|tests)/'],
         'dependencies run proto, base, coordinator, server, worker, cli'),
    Room('server', r'^server/',
         [r'"(worker|cli|tests)/', r'"coordinator/(core|store|service)/'],
         'dependencies run proto, base, coordinator, server, worker, cli'),
    Room('worker', r'^worker/',
         [r'"(cli|tests)/', r'"(coordinator|server)/(core|store|service)/'],
         'dependencies run proto, base, coordinator, server, worker, cli'),
    Room('cli', r'^cli/',
         [r'"tests/', r'"(coordinator|server)/(core|store|service)/',
          r'"worker/(core|data|collective|save)/'],
         'the command line sees clients and worker/api'),
]

# Calls that a core must not make.
CORE_CALLS = [
    (r'\babsl::Now\s*\(', 'reads the clock'),
    (r'\babsl::SleepFor\s*\(|\busleep\s*\(|\bsleep_for\s*\(', 'sleeps'),
    (r'\b(system_clock|steady_clock)::now\b|\bgettimeofday\s*\(|\btime\s*\(\s*'
     r'(NULL|nullptr|0)\s*\)', 'reads the clock'),
    (r'\bstd::random_device\b|\babsl::BitGen\b|[^\w.>:]rand\s*\(\s*\)',
     'random numbers without a seed'),
    (r'\bgetenv\s*\(', 'reads the environment'),
    (r'\b(fopen|ifstream|ofstream)\b', 'reads or writes files'),
]

# Calls that no source may make.
CALLS = [
    (r'\bgetenv\s*\(', r'(^|/)main\.cc$|_main\.cc$|^tests/benchmarks/',
     'the environment is read in main alone'),
    (r'\b(throw\s+\w|catch\s*\()', r'^$', 'errors are values'),
    (r'\bdelete\s+\w', r'^$', 'ownership is in the type'),
]

# Lines at the most: far past what the aims are.
CEILINGS = [(r'_test\.(cc|py)$', 1600), (r'\.(cc|cu|py)$', 1200),
            (r'\.(h|cuh)$', 500)]

# Words that have no place in the tree.
MENTIONS = [
    (re.compile(r'\.\./shared|/work/'), 'a path of one machine'),
    (re.compile('https?://[^ ]*' + r'(pypi|debian)\.(org|net)'),
     'a registry host'),
]


def strip_comments(line):
    return re.sub(r'"(\\.|[^"\\])*"', '""', line.split('//')[0])


def check_includes(path, lines):
    for number, line in lines:
        match = re.match(r'\s*#\s*include\s*([<"].*)', line)
        if not match:
            continue
        for room in ROOMS:
            if not re.search(room.path, path):
                continue
            if path.endswith('_test.cc') and room.name == 'core':
                banned = [b for b in room.banned if b not in FOR_TESTS]
            else:
                banned = room.banned
            for pattern in banned:
                if re.search(pattern, match.group(1)):
                    yield number, 'a %s file includes %s: %s' % (
                        room.name, match.group(1), room.why)


def check_calls(path, lines):
    core = re.search(ROOMS[0].path, path) and not path.endswith('_test.cc')
    for number, line in lines:
        code = strip_comments(line)
        if core:
            for pattern, what in CORE_CALLS:
                if re.search(pattern, code):
                    yield number, 'a core ' + what
        for pattern, allowed, why in CALLS:
            if re.search(pattern, code) and not re.search(allowed, path):
                yield number, why


def check_text(path, lines):
    for number, line in lines:
        if re.search(r'\b(TODO|FIXME|XXX)\b(?!\([^)]+\):)', line):
            yield number, 'a TODO without a reason: write TODO(reason): ...'
        for pattern, what in MENTIONS:
            if pattern.search(line):
                yield number, 'mentions ' + what


def check_file(path, text):
    """Yields (line, what) for each finding in one file."""
    lines = list(enumerate(text.split('\n'), 1))
    if CODE.search(path):
        yield from check_includes(path, lines)
        yield from check_calls(path, lines)
    if not path.startswith('tests/style/'):
        yield from check_text(path, lines)
    if os.path.basename(path) == 'BUILD':
        for number, line in lines:
            if re.search(r'\bglob\s*\(', line.split('#')[0]):
                yield number, 'a glob in a BUILD file: name the files'
    for pattern, ceiling in CEILINGS:
        if re.search(pattern, path):
            if len(lines) > ceiling:
                yield len(lines), 'is longer than %d lines' % ceiling
            break


def files_below(root):
    for folder, names, files in os.walk(root):
        names[:] = sorted(n for n in names if not SKIPPED.match(n))
        for name in sorted(files):
            full = os.path.join(folder, name)
            if not os.path.islink(full):
                yield os.path.relpath(full, root), full


def check_tree(root):
    findings = []
    for path, full in files_below(root):
        try:
            with open(full, encoding='utf-8') as file:
                text = file.read()
        except UnicodeDecodeError:
            continue  # Golden files and the like.
        findings += ['%s:%d: %s' % (path, number, what)
                     for number, what in check_file(path, text)]
    return findings


def main():
    findings = check_tree(sys.argv[1])
    print('\n'.join(findings) or 'nothing found')
    sys.exit(1 if findings else 0)


if __name__ == '__main__':
    main()
