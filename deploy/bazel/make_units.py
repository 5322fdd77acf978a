#!/usr/bin/python3
"""Writes units.bzl: what the files of each folder with a cc_room include.

A BUILD file is read as Python, with rules that only note their arguments.
"""

import builtins
import collections
import functools
import glob
import os
import re

PATH = 'deploy/bazel/units.bzl'
HEAD = '"""What C++ files include. deploy/bazel/make_units.py writes it."""\n\n'
_JSON = 'nlohmann/json.hpp'
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^">]+)[">]', re.M)

# By the beginning of an included path. Abseil and GoogleTest come by themselves.
_LIBRARIES = {
    'CLI/': 'cli11', 'curl/': 'curl', 'expat.h': 'expat',
    'google/protobuf/': 'protobuf', 'grpc/': 'grpc++', 'grpcpp/': 'grpc++',
    'hwy/': 'highway', 'microhttpd.h': 'microhttpd',
    'nlohmann/': 'nlohmann_json', 'oneapi/': 'onednn',
    'openssl/ssl.h': 'ssl', 'openssl/': 'crypto',
    'prometheus/': 'prometheus_cpp', 'rocksdb/': 'rocksdb',
    'toml++/': 'tomlplusplus', 'xxhash.h': 'xxhash', 'zstd.h': 'zstd',
}


class Folder:
  """A BUILD file: its rules and, if it has one, its cc_room."""

  def __init__(self, path, text):
    self.path = path
    self.rules = []  # (kind, arguments)
    self.is_room = False
    names = _Names(self)
    exec(compile(text, path + '/BUILD', 'exec'), names)  # pylint: disable=exec-used

  def label(self, name):
    if name == self.path.rpartition('/')[2]:
      return '//' + self.path
    return '//%s:%s' % (self.path, name)

  def files(self, arguments, kinds):
    name = arguments['name']
    found = []
    for attribute, ending in kinds:
      given = arguments.get(attribute)
      if given is None:
        found.append(name + ending)
      elif isinstance(given, list):
        found += [file for file in given if isinstance(file, str)]
    return found


class _Names(dict):
  """The names that a BUILD file uses."""

  def __init__(self, folder):
    super().__init__()
    self.folder = folder

  def __missing__(self, name):
    if hasattr(builtins, name):
      raise KeyError(name)
    if name == 'glob':
      return self._glob
    if name.isupper():
      return []
    if name == 'with_cuda':
      return lambda files, otherwise, **named: files + otherwise
    if name == 'select' or name.endswith(('cuda', 'toolkit')):
      return lambda *given, **named: []

    def note(*_, **arguments):
      self.folder.is_room |= name == 'cc_room'
      self.folder.rules.append((name, arguments))
    return note

  def _glob(self, patterns, exclude=()):
    found = [os.path.relpath(path, self.folder.path) for pattern in patterns
             for path in glob.glob(os.path.join(self.folder.path, pattern))]
    return sorted(set(found) - set(exclude))


def read_folders(root):
  os.chdir(root)
  folders = {}
  for path, inner, files in os.walk('.'):
    inner[:] = [name for name in inner if not name.startswith(('.', 'bazel-'))]
    path = os.path.relpath(path, '.')
    if 'BUILD' in files and not path.startswith('deploy/bazel'):
      with open(os.path.join(path, 'BUILD'), encoding='utf-8') as file:
        folders[path] = Folder(path, file.read())
  return folders


def units_of(folder):
  """{name: files}: the files that no rule of the BUILD file names."""
  taken = set()
  parts = {}
  apart = None
  for kind, arguments in folder.rules:
    if kind == 'cc_room':
      parts = arguments.get('parts', {})
      apart = arguments.get('apart')
      options = arguments.get('options', {})
    if kind in ('cc_library', 'cc_test', 'cc_binary', 'cuda_library'):
      taken.update(folder.files(arguments, [('srcs', '.cc'), ('hdrs', '.h')]))
  units = collections.defaultdict(list, {
      name: list(files) for name, files in parts.items()})
  taken.update(*parts.values())
  for name in sorted(os.listdir(folder.path)):
    stem, ending = os.path.splitext(name)
    # run_fuzzers.sh builds the fuzzers.
    if (ending in ('.cc', '.h') and name not in taken and
        not stem.endswith('_fuzzer')):
      alone = (apart is None or stem in apart or stem in parts or
               stem.endswith('_test') or 'binary' in options.get(stem, {}))
      units[stem if alone else os.path.basename(folder.path)].append(name)
  return units


def header_owners(folders):
  """Three of {included path: label}: usual ones, interfaces, doubles.

  Some headers are in two targets. Either one has their sources, and the other,
  their interface, has none. Or one is for tests alone: the double.
  """
  owners, interfaces, doubles = {}, {}, {}
  for folder in folders.values():
    for kind, arguments in folder.rules:
      if kind == 'cc_library':
        headers = folder.files(arguments, [('hdrs', '.h')])
        headers += arguments.get('textual_hdrs') or []
        sources = folder.files(arguments, [('srcs', '.cc')])
        compiles = any(os.path.exists('%s/%s' % (folder.path, source))
                       for source in sources)
        for header in headers:
          path = '%s/%s' % (folder.path, header)
          label = folder.label(arguments['name'])
          other = owners.setdefault(path, label)
          if other == label:
            continue
          if arguments.get('testonly'):
            doubles[path] = label
          # Not every build has the other kind: its users name it.
          elif 'target_compatible_with' not in arguments:
            compiles |= other.replace('//' + folder.path, '') in (
                arguments.get('deps') or [])
            owners[path], interfaces[path] = (
                (label, other) if compiles else (other, label))
      if kind in ('atoll_proto_library', 'atoll_grpc_library'):
        ending = '.grpc.pb.h' if kind == 'atoll_grpc_library' else '.pb.h'
        for source in arguments['srcs']:
          header = source[:-len('.proto')] + ending
          for path in (header, '%s/%s' % (folder.path, header)):
            owners[path] = folder.label(arguments['name'])
    if folder.is_room:
      for name, files in units_of(folder).items():
        for header in files:
          owners['%s/%s' % (folder.path, header)] = folder.label(name)
  return owners, interfaces, doubles


def library_of(included):
  for beginning, label in _LIBRARIES.items():
    if included.startswith(beginning):
      return '@debian//:' + label
  return None


@functools.lru_cache(maxsize=None)
def reached(path):
  """The headers that a file includes, itself or through headers of ours."""
  if not os.path.exists(path):
    return frozenset()
  with open(path, encoding='utf-8') as file:
    found = frozenset(_INCLUDE.findall(file.read()))
  return found.union(*map(reached, found))


def includes_of(folder, files, headers, own):
  owners, interfaces, doubles = headers
  found = set()
  for name in files:
    with open('%s/%s' % (folder.path, name), encoding='utf-8') as file:
      for included in _INCLUDE.findall(file.read()):
        owner = owners.get(included) or library_of(included)
        if own.endswith('_test'):
          owner = doubles.get(included, owner)
        # A part of what implements the interface.
        elif (folder.path + '/').startswith(os.path.dirname(included) + '/'):
          owner = interfaces.get(included, owner)
        found.add(owner)
  # Decides which precompiled header a file is compiled with (cc.bzl).
  if any(_JSON in reached('%s/%s' % (folder.path, name)) for name in files):
    found.add(library_of(_JSON))
  found -= {None, folder.label(own)}
  here = '//%s:' % folder.path
  return sorted(label[len(here) - 1:] if label.startswith(here) else label
                for label in found)


def make(root):
  """The text of units.bzl."""
  folders = read_folders(root)
  headers = header_owners(folders)
  lines = []
  for path, folder in sorted(folders.items()):
    if not folder.is_room:
      continue
    lines.append('    "%s": {\n' % path)
    lines += ['        "%s": "%s",\n' % (
        name, ' '.join(includes_of(folder, files, headers, name)))
              for name, files in sorted(units_of(folder).items())]
    lines.append('    },\n')
  return HEAD + 'UNITS = {\n' + ''.join(lines) + '}\n'


def main():
  root = os.path.join(os.path.dirname(os.path.realpath(__file__)), '../..')
  made = make(root)
  with open(os.path.join(root, PATH), 'w', encoding='utf-8') as file:
    file.write(made)


if __name__ == '__main__':
  main()
