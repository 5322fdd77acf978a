"""The rules: each takes a file's path and text and yields violations.

A place that has a reason says so on its line or on the line above, as
`style-ok(RULE): why`, and is not reported.
"""

import collections
import re

import precompiled
import rooms
import source_text

Violation = collections.namedtuple('Violation', 'path line rule message')

# Hard ceilings, well past what one aims at (header 250, source 600, test 800,
# function 70, 80 columns).
HEADER_LINES_MAX = 500
SOURCE_LINES_MAX = 1000
TEST_LINES_MAX = 1500
FUNCTION_LINES_MAX = 150
COLUMNS_MAX = 100

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


def sizes(path, text):
  lines = text.split('\n')
  count = len(lines) - (lines[-1] == '')
  limit = None
  if rooms.is_test(path):
    limit = TEST_LINES_MAX
  elif path.endswith(('.h', '.cuh')):
    limit = HEADER_LINES_MAX
  elif path.endswith(('.cc', '.cu', '.inc', '.py', '.sh', '.bzl')):
    limit = SOURCE_LINES_MAX
  if limit and count > limit:
    yield Violation(path, count, 'size',
                    '%d lines are more than %d' % (count, limit))
  if not _is_cpp(path):
    return
  for line, length in source_text.functions(source_text.code_only(text)):
    if length > FUNCTION_LINES_MAX:
      yield Violation(
          path, line, 'size', 'a function of %d lines is longer than %d' %
          (length, FUNCTION_LINES_MAX))
  for number, line in enumerate(lines, 1):
    if len(line) > COLUMNS_MAX and not re.search(r'#include|https?://|R"', line):
      yield Violation(path, number, 'size',
                      '%d columns are more than %d' % (len(line), COLUMNS_MAX))


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
  guard = re.sub(r'[^A-Za-z0-9]', '_', path).upper() + '_'
  if '#ifndef %s\n#define %s\n' % (guard, guard) not in text:
    yield Violation(path, 1, 'header', 'the include guard is not ' + guard)


_PROTO_ITEM = re.compile(
    r'^\s*(?:(service|message|enum|rpc)\s+(\w+)'
    r'|(?:repeated\s+|optional\s+)?(?:map<[^>]*>|[\w.]+)\s+(\w+)\s*=\s*\d+'
    r'|([A-Z][A-Z0-9_]*)\s*=\s*\d+)')


def protos(path, text):
  """Everything in the contract has a comment, each method its errors."""
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
    if path.split('/')[-1] != 'BUILD' or path.split('/')[0] not in (
        'base', 'coordinator', 'server', 'worker', 'cli'):
      continue
    has_library = re.search(r'^cc_library\((?:(?!^\)).)*?^\s+srcs\s*=', text,
                            re.M | re.S)
    if 'default_testonly = True' in text:
      continue
    if has_library and not re.search(r'^\w+_test\(', text, re.M):
      yield Violation(path, 1, 'test', 'a library without a test beside it')


def own_includes(files):
  """Across files: no file rests on what a precompiled header includes."""
  for header in precompiled.hidden(files):
    if header not in precompiled.USES:
      yield Violation(
          precompiled.HEADERS[0], 1, 'include',
          '%s: tests/style/precompiled.py does not know its names' % header)
  for path, line, name, header in precompiled.missing(files):
    yield Violation(path, line, 'include',
                    '%s: include %s, here or in a header' % (name, header))


PER_FILE = [
    includes_by_room, banned_calls, sizes, todos, foreign_paths, build_files,
    bazel_options, headers, protos
]
PER_TREE = [packages_have_tests, own_includes]


def _is_excused(violation, text):
  lines = text.split('\n')[max(0, violation.line - 2):violation.line]
  pattern = r'style-ok\(%s\): *\S' % violation.rule
  return any(re.search(pattern, line) for line in lines)


def check(files):
  """All violations in `files`, a dict from path to text, sorted."""
  found = []
  for path, text in files.items():
    for rule in PER_FILE:
      found.extend(rule(path, text))
  for rule in PER_TREE:
    found.extend(rule(files))
  return sorted(v for v in found if not _is_excused(v, files[v.path]))
