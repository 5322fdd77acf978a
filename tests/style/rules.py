"""The rules: each takes a file's path and text and yields violations.

`style-ok(RULE): why` on the line or the line above permits an exception.
"""

import collections
import re

import phrases
import precompiled
import rooms
import source_text

Violation = collections.namedtuple('Violation', 'path line rule message')

# A size that only shapes the code: above the target it is a warning, above the
# ceiling a violation.
Size = collections.namedtuple('Size', 'target ceiling')
HEADER_LINES = Size(250, 500)
SOURCE_LINES = Size(600, 1000)
TEST_LINES = Size(1000, 3000)
FUNCTION_LINES = Size(100, 300)
FOLDER_FILES = Size(48, 96)
PUBLIC_METHODS = Size(32, 80)
COLUMNS_MAX = 100

# Manuals are bounded in bytes: a bound in lines only makes lines longer.
MANUAL_BYTES_MAX = 14000
_LONG_MANUALS_BYTES_MAX = {
    'README.md': 20000, 'SECURITY.md': 20000, 'proto/ISLAND.md': 20000}
MANUAL_COLUMNS_MAX = 80
_NO_MANUALS = r'^tests/benchmarks/results/'

_CPP = ('.h', '.cc', '.cu', '.cuh', '.inc')


def _is_cpp(path):
  return path.endswith(_CPP)


def _is_build(path):
  name = path.split('/')[-1]
  return name in ('BUILD', 'WORKSPACE') or name.endswith('.bzl')


def _matches(pattern, text):
  """Yields (line number, match) for each place of `pattern`."""
  for match in re.finditer(pattern, text, re.M):
    yield text.count('\n', 0, match.start()) + 1, match


def includes_by_room(path, text):
  if not _is_cpp(path):
    return
  for line, included, quoted in source_text.includes(text):
    why = rooms.refusal(path, included, quoted)
    if why:
      yield Violation(path, line, 'include', '%s: %s' % (included, why))


_CORE_CALLS = [
    (r'\babsl::(Now|GetCurrentTimeNanos)\b', 'the time is handed to a core'),
    (r'\bstd::chrono::\w+_clock\b', 'the time is handed to a core'),
    (r'\b(clock_gettime|gettimeofday)\s*\(', 'the time is handed to a core'),
    (r'(?<![\w:.>])time\s*\(\s*(0|NULL|nullptr|&)',
     'the time is handed to a core'),
    (r'\bstd::(thread|jthread|async|mutex|condition_variable)\b',
     'a core has no threads'),
    (r'\b(fopen|fprintf|fwrite|printf|std::(cout|cerr|clog|[io]?fstream))\b',
     'a core does no I/O'),
    (r'\b(absl::(Insecure)?BitGen|std::random_device|std::mt19937\w*)\b',
     'random numbers are counter-based and keyed'),
    (r'(?<![\w:.>])s?rand(om)?\s*\(\s*\)',
     'random numbers are counter-based and keyed'),
    (r'\bLOG\s*\(', 'the caller of a core logs its reasons'),
]
_SLEEPS = (r'\b(absl::SleepFor|std::this_thread::sleep_\w+|nanosleep|usleep'
           r'|clock_nanosleep)\b|(?<![\w:.>])sleep\s*\(')
_ANYWHERE_CALLS = [
    (r'\bthrow\b(?!\s*\(\s*\))', 'errors are values'),
    (r'\bdelete\s+(?!this\b)\w', 'ownership is in the type'),
    (r'^\s*using\s+namespace\b', 'names are qualified'),
    (r'\b(strcpy|strcat|sprintf|gets)\s*\(', 'unbounded'),
    (r'\b(atoi|atol|atof)\s*\(', 'no errors: use absl::SimpleAtoi'),
]


def banned_calls(path, text):
  if not path.endswith(('.h', '.cc', '.cu', '.inc')):
    return
  code = source_text.code_only(text)
  rules = list(_ANYWHERE_CALLS)
  is_test = rooms.is_test(path)
  room = rooms.room_of(path)
  if room and room.name == 'core' and not is_test:
    rules += _CORE_CALLS
  is_benchmark = path.startswith('tests/benchmarks/')
  if (room and room.name in ('core', 'kernels')) or (
      is_test and not is_benchmark):
    rules.append((_SLEEPS, 'no core and no test sleeps'))
  if not (is_test or re.search(r'^int main\(', code, re.M)):
    rules.append((r'\bcatch\s*\(', 'errors are values'))
    rules.append((r'\b(secure_)?getenv\s*\(|\benviron\b',
                  'the environment is read in main alone'))
  for pattern, why in rules:
    for line, match in _matches(pattern, code):
      yield Violation(path, line, 'call',
                      '%s: %s' % (match.group(0).strip(), why))


def _size(path, line, what, count, size):
  """Yields a violation above the ceiling of `size`, a warning above its target."""
  if count > size.ceiling:
    yield Violation(path, line, 'size',
                    '%s: %d are more than %d' % (what, count, size.ceiling))
  elif count > size.target:
    yield Violation(path, line, 'target',
                    '%s: %d are more than %d' % (what, count, size.target))


def sizes(path, text):
  lines = text.split('\n')
  count = len(lines) - (lines[-1] == '')
  size = None
  if rooms.is_test(path):
    size = TEST_LINES
  elif path.endswith(('.h', '.cuh')):
    size = HEADER_LINES
  elif path.endswith(('.cc', '.cu', '.inc', '.py', '.sh', '.bzl')):
    size = SOURCE_LINES
  if size and path != 'deploy/bazel/units.bzl' and not path.endswith('.md'):
    yield from _size(path, count, 'lines', count, size)
  if not _is_cpp(path):
    return
  for line, length in source_text.functions(source_text.code_only(text)):
    yield from _size(path, line, 'lines of a function', length, FUNCTION_LINES)
  for number, line in enumerate(lines, 1):
    if len(line) > COLUMNS_MAX and not re.search(r'#include|https?://|R"', line):
      yield Violation(path, number, 'size',
                      '%d columns are more than %d' % (len(line), COLUMNS_MAX))


def public_methods(path, text):
  if not path.endswith('.h') or rooms.is_test(path):
    return
  for line, name, count in source_text.classes(source_text.code_only(text)):
    yield from _size(path, line, 'public methods of ' + name, count,
                     PUBLIC_METHODS)


_MANUAL_ITEM = re.compile(r'\s*([-*]|\d+\.) ')


def manuals(path, text):
  """Manuals are short, and wrapped except for tables, links and code."""
  if not path.endswith('.md') or re.search(_NO_MANUALS, path):
    return
  count = len(text.encode('utf-8'))
  limit = _LONG_MANUALS_BYTES_MAX.get(path, MANUAL_BYTES_MAX)
  if count > limit:
    yield Violation(path, 1, 'size',
                    '%d bytes are more than %d' % (count, limit))
  in_code, after_blank = False, True
  for number, line in enumerate(text.split('\n'), 1):
    if not line.strip():
      after_blank = True
      continue
    indented = line.startswith('    ') and not _MANUAL_ITEM.match(line)
    in_code = line.startswith('    ') and in_code or indented and after_blank
    after_blank = False
    if (len(line) > MANUAL_COLUMNS_MAX and ' ' in line.strip() and
        not in_code and not line.lstrip().startswith('|') and
        not re.search(r'\]\(|://', line)):
      yield Violation(path, number, 'size', '%d columns are more than %d' %
                      (len(line), MANUAL_COLUMNS_MAX))


_UNDERSCORE_FLAG = r'(?<![\w-])--[a-z][a-z0-9]*_[a-z0-9_]*'
_OTHERS_FLAGS = r'--(test_\w+|disk_cache|local_\w+|\w+_out|descriptor_\w+)$'


def flags(path, text):
  """Our flags are spelt with dashes in all text for people."""
  if not path.endswith(('.h', '.cc', '.md', '.toml', '.proto')):
    return
  for line, match in _matches(_UNDERSCORE_FLAG, text):
    before = text[:match.start()].rsplit('\n', 1)[-1]
    quoted = before.count('"') % 2 == 1 or '//' in before or path.endswith(
        ('.md', '.toml', '.proto'))
    if quoted and not re.search(_OTHERS_FLAGS, match.group(0)):
      yield Violation(path, line, 'flag',
                      '%s: spell it with dashes' % match.group(0))


_TODO = r'\b(TODO|FIXME|XXX|HACK)\b(?!X)(\(([^)]*)\))?'


def todos(path, text):
  if path.endswith(('.md', '.golden', '.json')):
    return
  for line, match in _matches(_TODO, text):
    if match.group(1) != 'TODO' or not (match.group(3) or '').strip():
      yield Violation(
          path, line, 'todo',
          '%s: write TODO(reason), with why it is not done' % match.group(1))


_FOREIGN = [
    (r'(?<![\w.-])/work/', 'a path of one machine'),
    (r'(?<![\w./-])/?shared/[a-z]+\.md', 'a file that is not in the tree'),
    (r'(?<![\w/-])(house|protocol|conventions|perf|design)\.md\b',
     'a file that is not in the tree'),
    (r'(?<![\w.-])/tmp/(atoll|bz)/', 'a path of one machine'),
    (r'https?://[^ ]*(pypi|debian)\.(org|net)', 'a registry host'),
]


def foreign_paths(path, text):
  for pattern, why in _FOREIGN:
    for line, match in _matches(pattern, text):
      yield Violation(path, line, 'path', '%s: %s' % (match.group(0), why))


def build_files(path, text):
  if not _is_build(path):
    return
  code = re.sub(r'#[^\n]*', '', re.sub(r'"""(.|\n)*?"""', lambda m: re.sub(
      r'[^\n]', ' ', m.group(0)), text))
  for line, _ in _matches(r'\bglob\s*\(', code):
    yield Violation(path, line, 'build', 'glob: name the files')
  for line, _ in _matches(r'-march=native|-ffast-math|-Ofast|-funsafe-math',
                          code):
    yield Violation(path, line, 'build',
                    'SIMD is chosen at run time and bits do not depend on flags')
  if (re.search(r'^cc_(binary|library|test)\(', code, re.M) and
      not path.startswith('deploy/bazel/external/') and
      'load("//deploy/bazel:cc.bzl"' not in code):
    yield Violation(path, 1, 'build', 'C++ without load("//deploy/bazel:cc.bzl", '
                    '...): compiles without a precompiled header')
  if not path.startswith(('deploy/bazel/', 'worker/sdk/')):
    for line, _ in _matches(r'"//visibility:public"', code):
      yield Violation(path, line, 'build',
                      'public: give a package_group of the root BUILD')


def bazel_options(path, text):
  if not path.endswith('.bazelrc'):
    return
  for line, match in _matches(
      r'^[^#\n]*(-march=native|-ffast-math|-Ofast|-ffp-contract=(fast|on)\b)',
      text):
    yield Violation(path, line, 'build', match.group(1))


def headers(path, text):
  if not path.endswith('.h'):
    return
  if not text.startswith(('//', '/*')):
    yield Violation(path, 1, 'header',
                    'begins without a comment that says what it is')
  if path.endswith('-inl.h'):  # Included once for each instruction set.
    return
  if '\n#pragma once\n' not in text:
    yield Violation(path, 1, 'header', 'it has no #pragma once')


_PROTO_ITEM = re.compile(
    r'^\s*(?:(service|message|enum|rpc)\s+(\w+)'
    r'|(?:repeated\s+|optional\s+)?(?:map<[^>]*>|[\w.]+)\s+(\w+)\s*=\s*\d+'
    r'|([A-Z][A-Z0-9_]*)\s*=\s*\d+)')


def protos(path, text):
  """Everything in a proto has a comment; each method lists its errors."""
  if not path.startswith('proto/atoll/') or not path.endswith('.proto'):
    return
  lines = text.split('\n')
  for number, line in enumerate(lines, 1):
    match = _PROTO_ITEM.match(line)
    if not match or re.match(r'\s*(option|reserved|return|syntax)\b', line):
      continue
    name = next(group for group in match.groups()[1:] if group)
    above = []
    for earlier in reversed(lines[:number - 1]):
      if not earlier.strip().startswith('//'):
        break
      above.append(earlier)
    trailing = '//' in line
    if not above and not trailing:
      yield Violation(path, number, 'proto', '%s has no comment' % name)
    if match.group(1) == 'rpc' and not any('rrors' in a for a in above):
      yield Violation(path, number, 'proto',
                      '%s does not list its Errors:' % name)


def packages_have_tests(files):
  """Across files: a package with a compiled library has a test."""
  for path, text in files.items():
    folder, _, name = path.rpartition('/')
    if name != 'BUILD' or folder.split('/')[0] not in (
        'base', 'coordinator', 'server', 'worker', 'cli'):
      continue
    if 'default_testonly = True' in text:
      continue
    sources = [other for other in files if other.endswith('.cc') and
               other.rpartition('/')[0] == folder and
               not other.endswith('/main.cc') and not rooms.is_test(other)]
    library = re.search(r'^cc_(library|room)\(\n', text, re.M)
    if not sources or not library or re.search(r'^\w+_test\(', text, re.M):
      continue
    if not any(other.rpartition('/')[0] == folder and
               other.endswith('_test.cc') for other in files):
      first = text[:library.start()].count('\n') + 1
      yield Violation(path, first, 'test', 'a library without a test beside it')


def folders_are_small(files):
  counts = collections.Counter(path.rpartition('/')[0] for path in files)
  for folder, count in counts.items():
    first = min(p for p in files if p.rpartition('/')[0] == folder)
    yield from _size(first, 1, 'files in ' + folder, count, FOLDER_FILES)


def folders_say_what_they_hold(files):
  """Across files: a folder's BUILD begins with a sentence about it."""
  for path, text in files.items():
    if path.split('/')[-1] == 'BUILD' and not path.startswith(
        'deploy/bazel/') and not text.startswith('# '):
      yield Violation(path, 1, 'build',
                      'begins without a comment on what belongs here')


def _folder_includes(files):
  """{folder: {folder: (path, line, included)}} of shipped code.

  A program's main file may include all folders and is skipped.
  """
  edges = collections.defaultdict(dict)
  for path, text in files.items():
    if (not _is_cpp(path) or path.split('/')[0] not in rooms.SHIPPED or
        rooms.is_test(path) or re.search(r'^int main\(', text, re.M)):
      continue
    folder = path.rpartition('/')[0]
    for line, included, quoted in source_text.includes(text):
      target = included.rpartition('/')[0]
      if (quoted and included in files and target != folder and
          not rooms.is_test(included)):
        edges[folder].setdefault(target, (path, line, included))
  return edges


def no_circles(files):
  """Across files: includes between folders have no cycle."""
  edges = _folder_includes(files)

  def reached(start):
    seen, to_do = set(), [start]
    while to_do:
      for target in edges.get(to_do.pop(), ()):
        if target not in seen:
          seen.add(target)
          to_do.append(target)
    return seen

  reach = {folder: reached(folder) for folder in list(edges)}
  for folder, targets in edges.items():
    for target, (path, line, included) in targets.items():
      if folder in reach.get(target, ()):
        yield Violation(path, line, 'circle',
                        '%s: %s/ includes %s/ in turn' %
                        (included, target, folder))


def own_includes(files):
  """Across files: no file relies on a precompiled header's includes."""
  for header in precompiled.hidden(files):
    if header not in precompiled.USES:
      yield Violation(
          precompiled.HEADERS[0], 1, 'include',
          '%s: tests/style/precompiled.py does not know its names' % header)
  for path, line, name, header in precompiled.missing(files):
    yield Violation(path, line, 'include',
                    '%s: include %s, here or in a header' % (name, header))


_NAMED_TEST = re.compile(r'`([a-z0-9_/]+_test)`')


def named_tests(files):
  """Across files: the tests that SECURITY.md names are there."""
  tests = ['/' + path.rsplit('.', 1)[0] for path in files
           if path.endswith(('_test.cc', '_test.py', '_test.sh'))]
  text = files.get('SECURITY.md', '')
  for number, line in enumerate(text.split('\n'), 1):
    for name in _NAMED_TEST.findall(line):
      if not any(test.endswith('/' + name) for test in tests):
        yield Violation('SECURITY.md', number, 'test',
                        '%s: there is no such test' % name)


_RUN_BY_HAND = 'tests/tools/torch_islands.py'


def scripts_are_run(files):
  """Across files: each test that is a script stands in its folder's BUILD."""
  by_hand = files.get(_RUN_BY_HAND, '')
  for path in files:
    if not path.endswith(('_test.py', '_test.sh')) or path in by_hand:
      continue
    folder, _, name = path.rpartition('/')
    if not re.search(r'\b%s\b' % name.rsplit('.', 1)[0],
                     files.get(folder + '/BUILD', '')):
      yield Violation(path, 1, 'test', 'no BUILD file has it: it is never run')


def plain_phrases(files):
  """Across files: no phrase that plain English avoids becomes more frequent."""
  for path, line, message in phrases.excess(files):
    yield Violation(path, line, 'phrase', message)


PER_FILE = [
    includes_by_room, banned_calls, sizes, public_methods, manuals, flags,
    todos, foreign_paths, build_files, bazel_options, headers, protos
]
PER_TREE = [
    packages_have_tests, folders_are_small, folders_say_what_they_hold,
    no_circles, own_includes, named_tests, scripts_are_run, plain_phrases
]


def _is_excused(violation, text):
  lines = text.split('\n')[max(0, violation.line - 2):violation.line]
  pattern = r'style-ok\(%s\): *\S' % violation.rule
  return any(re.search(pattern, line) for line in lines)


def check(files):
  """(violations, warnings) in `files`, a dict from path to text; both sorted."""
  found = []
  for path, text in files.items():
    for rule in PER_FILE:
      found.extend(rule(path, text))
  for rule in PER_TREE:
    found.extend(rule(files))
  found = sorted(v for v in found if not _is_excused(v, files[v.path]))
  return ([v for v in found if v.rule != 'target'],
          [v for v in found if v.rule == 'target'])
