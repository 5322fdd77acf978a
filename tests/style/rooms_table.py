#!/usr/bin/python3
"""Writes the table of rooms of DESIGN.md: each folder, and its sentence.

    tests/style/rooms_table.py

The sentence is the first one of the folder's BUILD. Folders of test doubles, and
those below deploy/ and tests/, are left out: the DESIGN.md files of these two
list theirs.
"""

import os
import re

import tree

_HEAD = '| folder | what belongs there |\n| --- | --- |\n'
_SKIPPED = re.compile(r'^(deploy|tests)/|/(testdata|testing|fuzz)$|^\.ci|^$')
# Folders without a BUILD.
_SENTENCES = {
    'base': 'What every program stands on; its rooms are below.',
    'deploy': 'How it is built, shipped and started.',
    'proto/atoll/storage/v1': 'The records of the coordinator\'s log.',
    'proto/atoll/v1': 'The wire: one file a service, and what they share.',
    'proto/google/rpc': 'Status and error details, as gRPC has them.',
    'proto/grpc/health/v1': 'The health service, as gRPC has it.',
    'proto/grpc/reflection/v1alpha': 'The reflection service, as gRPC has it.',
    'worker': 'An island; its rooms are below.',
    'worker/sdk/python/atoll': 'The modules of the package.',
}


def sentence(build):
  """The first sentence of the comment that begins a BUILD file."""
  comment = re.match(r'(#.*\n)*', build).group()
  text = ' '.join(line.lstrip('# ') for line in comment.splitlines())
  return re.split(r'(?<=\.)\s', text)[0].replace('|', '\\|')


def make(files):
  """The table for `files`, as tree.read_tree returns them."""
  folders = sorted({os.path.dirname(path) for path in files})
  return _HEAD + ''.join(
      '| `%s/` | %s |\n' % (folder, _SENTENCES.get(folder) or
                            sentence(files.get(folder + '/BUILD', '')))
      for folder in folders if not _SKIPPED.search(folder))


def main():
  root = os.path.join(os.path.dirname(os.path.abspath(__file__)), '../..')
  files = tree.read_tree(root)
  text = files['DESIGN.md']
  with open(os.path.join(root, 'DESIGN.md'), 'w', encoding='utf-8') as file:
    file.write(text[:text.index('| folder | what')] + make(files))


if __name__ == '__main__':
  main()
