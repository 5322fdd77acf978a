"""Parses C++ files as far as the rules need, without a compiler."""

import functools
import re

_TOKENS = re.compile(
    r'(?P<raw>R"(?P<mark>[^()\\\s]{0,16})\(.*?\)(?P=mark)")'
    r'|(?P<string>"(?:\\.|[^"\\\n])*")'
    r"|(?P<number>\b\d[\w']*)"
    r"|(?P<char>'(?:\\.|[^'\\\n])*')"
    r'|(?P<line>//[^\n]*)'
    r'|(?P<block>/\*.*?\*/)', re.S)


def _blank(text):
  """`text` with every character except line ends replaced by a space."""
  return re.sub(r'[^\n]', ' ', text)


@functools.lru_cache(maxsize=None)  # Several rules call it.
def code_only(text):
  """`text` with comments, strings and characters blanked; lines stay."""

  def replace(match):
    token = match.group(0)
    if match.group('number'):
      return token
    if match.group('string') or match.group('char') or match.group('raw'):
      return token[0] + _blank(token[1:-1]) + token[-1]
    return _blank(token)

  return _TOKENS.sub(replace, text)


def comments(text):
  """Yields (line number, text) of each line of comment."""
  for match in _TOKENS.finditer(text):
    if match.group('line') or match.group('block'):
      first = text.count('\n', 0, match.start()) + 1
      for offset, line in enumerate(match.group(0).split('\n')):
        yield first + offset, line


def strings(text):
  """Yields (line number, begin, end, content) of each string literal."""
  for match in _TOKENS.finditer(text):
    if match.group('string') or match.group('raw'):
      token = match.group(0)
      begin, end = '()' if match.group('raw') else '""'
      yield (text.count('\n', 0, match.start()) + 1, *match.span(),
             token[token.index(begin) + 1:token.rindex(end)])


_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"\n]+)[>"]', re.M)


def includes(text):
  """Yields (line number, path, is quoted) of each include."""
  for match in _INCLUDE.finditer(text):
    line = text.count('\n', 0, match.start()) + 1
    yield line, match.group(2), match.group(1) == '"'


_NOT_FUNCTION = re.compile(
    r'\b(namespace|class|struct|union|enum|extern)\b(?!.*\))', re.S)


def functions(code):
  """Yields (line number, line count) of each outermost function body.

  `code` comes from code_only. A block is a function's if the text before it,
  since the last statement, has a parameter list and opens no type or namespace.
  """
  code = re.sub(r'^[ \t]*#(?:[^\n]*\\\n)*[^\n]*', lambda m: _blank(m.group(0)),
                code, flags=re.M)
  stack = []  # For each open brace: (opens a function, line).
  head_begin = 0
  line = 1
  for place, char in enumerate(code):
    if char == '\n':
      line += 1
    elif char == '{':
      head = code[head_begin:place]
      inside = any(is_function for is_function, _ in stack)
      is_function = (not inside and ')' in head and
                     not _NOT_FUNCTION.search(head))
      stack.append((is_function, line))
      head_begin = place + 1
    elif char == '}':
      if stack:
        is_function, first = stack.pop()
        if is_function:
          yield first, line - first + 1
      head_begin = place + 1
    elif char == ';':
      head_begin = place + 1


_CLASS = re.compile(r'\b(class|struct)\s+(?:ABSL_\w+\s+)?(\w+)[^;{}()]*$')
_NO_METHOD = re.compile(
    r'^\s*(friend|using|typedef|static_assert|template\s+class)\b|=\s*delete'
    r'|\b(override|final)\s*$')


def classes(code):
  """Yields (line number, name, public methods) of each class.

  `code` comes from code_only. Overloads count. Constructors, destructors,
  deleted methods, friends and overrides do not.
  """
  code = re.sub(r'^[ \t]*#(?:[^\n]*\\\n)*[^\n]*', lambda m: _blank(m.group(0)),
                code, flags=re.M)
  stack = []  # For each open brace: a class as [name, line, public, count].
  head_begin = 0
  for place, char in enumerate(code):
    if char not in '{};:':
      continue
    head = code[head_begin:place]
    at = stack[-1] if stack else None
    if char == ':':
      access = re.search(r'\b(public|protected|private)\s*$', head)
      if at and access:
        at[2] = access.group(1) == 'public'
        head_begin = place + 1
      continue
    opened = _CLASS.search(head) if char == '{' else None
    if at and at[2] and char != '}' and not opened and '(' in head:
      name = re.search(r'(~?\w+|operator\W+)\s*\(', head)
      if name and name.group(1).strip('~') != at[0] and not _NO_METHOD.search(
          head):
        at[3] += 1
    if char == '{':
      line = code.count('\n', 0, place) + 1
      stack.append([opened.group(2), line, opened.group(1) == 'struct', 0]
                   if opened else None)
    elif char == '}' and stack:
      done = stack.pop()
      if done:
        yield done[1], done[0], done[3]
    head_begin = place + 1
