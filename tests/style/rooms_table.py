#!/usr/bin/python3
"""Prints the table of rooms of DESIGN.md: folder, its sentence, files, lines.

    tests/style/rooms_table.py > table.md

The sentence is the first one of the folder's BUILD. Files are those directly in
the folder. Lines are of production C++, CUDA, protos, BUILD, .bzl and Markdown,
written by hand. Folders of test doubles, and those below deploy/ and tests/, are
left out: the DESIGN.md files of these two list theirs.
"""

import os
import re
import subprocess

_COUNTED = re.compile(r'\.(h|cc|cu|inc|proto|bzl|md)$|(^|/)BUILD$')
_TESTS = re.compile(r'^tests/|_test\.|/testing/|testdata|fuzz')
_SKIPPED = re.compile(r'^(deploy|tests)/|/(testdata|testing|fuzz)$|^\.ci')
_GENERATED = 'deploy/bazel/units.bzl'
# Folders without a BUILD.
_SENTENCES = {
    'base': 'What every program stands on; its rooms are below.',
    'deploy': 'How it is built, shipped and started.',
    'proto/atoll/storage/v1': 'The records of the coordinator\'s log.',
    'proto/atoll/v1': 'The wire: one file a service, and what they share.',
    'proto/google/rpc': 'Status and error details, as gRPC has them.',
    'worker': 'An island; its rooms are below.',
    'worker/sdk/python/atoll': 'The modules of the package.',
}


def sentence(folder):
  """The first sentence of the comment that begins the folder's BUILD."""
  try:
    with open(os.path.join(folder, 'BUILD'), encoding='utf-8') as file:
      lines = file.read().split('\n')
  except FileNotFoundError:
    return _SENTENCES.get(folder, '')
  words = []
  for line in lines:
    if not line.startswith('#'):
      break
    words.append(line.lstrip('# ').strip())
  text = ' '.join(words)
  return re.split(r'(?<=\.)\s', text)[0].replace('|', '\\|')


def main():
  os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), '../..'))
  paths = subprocess.check_output(['git', 'ls-files'], text=True).split()
  rooms = {}
  for path in paths:
    folder = os.path.dirname(path)
    if not folder or _SKIPPED.search(folder):
      continue
    files, lines = rooms.get(folder, (0, 0))
    if (_COUNTED.search(path) and not _TESTS.search(path) and
        path != _GENERATED):
      with open(path, encoding='utf-8', errors='replace') as file:
        lines += file.read().count('\n')
    rooms[folder] = (files + 1, lines)
  print('| folder | what belongs there | files | lines |')
  print('| --- | --- | --- | --- |')
  for folder, (files, lines) in sorted(rooms.items()):
    print('| `%s/` | %s | %d | %d |' % (folder, sentence(folder), files, lines))


if __name__ == '__main__':
  main()
