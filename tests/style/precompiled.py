"""Finds includes that a file lacks but a precompiled header hides.

deploy/bazel/cc.bzl puts a header before each file, so g++ does not notice a
missing include. This check does: a file that uses a name must reach that name's
header by its own includes or through our headers. Headers of protobuf are not
checked, because generated headers include them.
"""

import re

import source_text

HEADERS = (
    'deploy/bazel/precompiled/library.h',
    'deploy/bazel/precompiled/json.h',
    'deploy/bazel/precompiled/test.h',
)
_OF_GENERATED_CODE = r'^google/protobuf/'

_ALGORITHMS = (
    'all_of|any_of|binary_search|clamp|copy_n|copy_if|count|count_if|equal|'
    'equal_range|fill|fill_n|find|find_if|find_if_not|for_each|generate|'
    'includes|is_sorted|lexicographical_compare|lower_bound|max|max_element|'
    'merge|min|min_element|minmax|minmax_element|mismatch|next_permutation|'
    'none_of|nth_element|partial_sort|partition|partition_point|remove|'
    'remove_if|replace|reverse|rotate|search|set_difference|set_intersection|'
    'set_union|shuffle|sort|stable_sort|swap_ranges|transform|unique|'
    'upper_bound')

_MATCHERS = (
    'AllOf|AnyOf|Contains|DoubleEq|Each|ElementsAre(Array)?|EndsWith|Field|'
    'FloatEq|FloatNear|HasSubstr|IsEmpty|IsSupersetOf|MatchesRegex|Not|Optional|'
    'Pair|Pointee|Property|SizeIs|StartsWith|UnorderedElementsAre(Array)?')

# For each header: the names that need it.
USES = {
    'algorithm': r'\bstd::(ranges::)?(%s)\s*\(' % _ALGORITHMS,
    'cstdint': r'\bu?int(8|16|32|64)_t\b',
    'functional': r'\bstd::(function|reference_wrapper|c?ref)\b',
    'map': r'\bstd::(multi)?map\b',
    'memory': r'\bstd::(unique_ptr|shared_ptr|weak_ptr|make_unique|'
              r'make_shared)\b',
    'optional': r'\bstd::(optional|nullopt|make_optional)\b',
    'set': r'\bstd::(multi)?set\b',
    'string': r'\bstd::(string|to_string|getline)\b',
    'utility': r'\bstd::(pair|make_pair|exchange|forward|move|swap)\b',
    'vector': r'\bstd::vector\b',
    'absl/status/status.h': r'\babsl::(Status|OkStatus|StatusCode|\w+Error)\b',
    'absl/status/statusor.h': r'\babsl::StatusOr\b',
    'absl/strings/str_cat.h': r'\babsl::(StrCat|StrAppend|AlphaNum|Hex|Dec)\b',
    'absl/strings/string_view.h': r'\babsl::string_view\b',
    'absl/time/time.h': r'\babsl::(Time|Duration|ZeroDuration|'
                        r'Infinite(Future|Past|Duration)|UnixEpoch|'
                        r'(Nano|Micro|Milli)?[Ss]econds|Minutes|Hours|'
                        r'(To|From)\w*(Seconds|Unix\w*)|(Format|Parse)Time|'
                        r'(Format|Parse)Duration)\b',
    'absl/types/span.h': r'\babsl::(Span|Make(Const)?Span)\b',
    'nlohmann/json.hpp': r'\bnlohmann::\w+',
    'gmock/gmock.h': r'\b((EXPECT|ASSERT)_THAT(_\w+)?|MATCHER(_P\d?)?)\s*\(|'
                     r'\btesting::(%s)\b' % _MATCHERS,
    'gtest/gtest.h': r'\b(TEST(_[FP])?|(EXPECT|ASSERT)_\w+)\s*\(',
}


def hidden(files):
  """The foreign headers that precompiled headers include, in order."""
  paths = []
  for header in HEADERS:
    for _, included, _ in source_text.includes(files.get(header, '')):
      if included not in files and not re.search(_OF_GENERATED_CODE, included):
        paths.append(included)
  return paths


class Reach:
  """The includes of each file, direct and through headers in `files`."""

  def __init__(self, files):
    self._direct = {
        path: {included for _, included, _ in source_text.includes(text)}
        for path, text in files.items()
    }
    self._known = {}

  def of(self, path):
    if path not in self._known:
      seen = {path}
      todo = [path]
      while todo:
        for included in self._direct.get(todo.pop(), ()):
          if included not in seen:
            seen.add(included)
            todo.append(included)
      self._known[path] = seen
    return self._known[path]


def missing(files):
  """Yields (path, line, name, header) of each name without its header."""
  names = {header: USES[header] for header in hidden(files) if header in USES}
  reach = Reach(files)
  for path, text in files.items():
    if not path.endswith(('.h', '.cc')) or path.endswith('-inl.h'):
      continue
    code = source_text.code_only(text)
    for header, pattern in names.items():
      if header in reach.of(path):
        continue
      use = re.search(pattern, code)
      if use:
        yield path, code.count('\n', 0, use.start()) + 1, use.group(0), header
