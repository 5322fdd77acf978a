"""Reads the tree that is checked."""

import os

# Root folders that are not sources.
_NOT_SOURCES = ('quickstart-out', 'test-out', 'shared', 'venv', 'node_modules')
_TEXT_NAMES = ('BUILD', 'WORKSPACE', 'Dockerfile', 'run', '.bazelrc',
               '.gitignore', '.bazelignore')
_TEXT_ENDINGS = ('.h', '.cc', '.cu', '.cuh', '.inc', '.py', '.sh', '.bzl',
                 '.proto', '.md', '.toml', '.yaml', '.yml', '.json', '.html',
                 '.js', '.css', '.txt')


def is_checked(path):
  parts = path.split('/')
  if parts[0] in _NOT_SOURCES or parts[0].startswith('bazel-'):
    return False
  if any(part.startswith('.') and part != '.ci' for part in parts[:-1]):
    return False
  if '__pycache__' in parts:
    return False
  # These contain the patterns that they look for.
  if parts[:2] == ['tests', 'style']:
    return parts[-1] == 'BUILD'
  return parts[-1] in _TEXT_NAMES or parts[-1].endswith(_TEXT_ENDINGS)


def read_tree(root):
  """The checked files under `root`: a dict from path to text."""
  files = {}
  for folder, folders, names in os.walk(root):
    below = os.path.relpath(folder, root)
    prefix = '' if below == '.' else below + '/'
    folders[:] = [
        f for f in folders if not os.path.islink(os.path.join(folder, f)) and
        not (prefix == '' and
             (f in _NOT_SOURCES or f.startswith('bazel-'))) and
        (f == '.ci' or not f.startswith('.'))
    ]
    for name in names:
      path = prefix + name
      full = os.path.join(folder, name)
      if is_checked(path) and os.path.isfile(full):
        with open(full, encoding='utf-8', errors='replace') as file:
          files[path] = file.read()
  return files
