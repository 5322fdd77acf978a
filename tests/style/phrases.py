"""Counts phrases that plain English avoids, in comments and in texts.

A phrase may occur as often as its limit says. So old ones need not all go at
once, and a new one fails the style test.
"""

import io
import re
import tokenize

import rooms
import source_text

# Sentences begin where a comment begins, or after a full stop or a colon.
_BEGIN = r'(?:^|(?<=[.:] ))'

# In comments and docstrings.
_COMMENTS = {
    'a sentence that begins with "Of"': _BEGIN + r'Of\b',
    'a sentence that begins with "Who" or "What"':
        _BEGIN + r'(?:Who|Whom|Whose|Whoever|What|Whatever)\b',
}
# In comments, and in strings: those are texts for people, or messages in logs.
_TEXTS = {
    'nobody': r'\b[Nn]obody\b',
    'goes on': r'\bgo(?:es)? on\b(?! the\b)',
    'there is none': r'\b[Tt]here (?:is|are|was|were) none\b',
    'no more': r'\b[Nn]o more\b(?! (?:\w+ )?than\b)',
    'beside': r'\b[Bb]eside\b',
    'is to': r'\b(?:is|are|was|were) to (?:be )?[a-z]+\b(?! of\b)',
    'that which': r'\b[Tt]hat which\b|\bas it comes\b',
}

# The number of places now. A smaller one is printed by the style test: then
# lower the limit. Never raise one to let a new place in.
LIMITS = {
    'a sentence that begins with "Of"': 1,
    'a sentence that begins with "Who" or "What"': 11,
    'nobody': 5,
    'goes on': 3,
    'there is none': 22,
    'no more': 1,
    'is to': 1,
}


def _joined(lines):
  """(text, [(offset, line number)]) of (line number, text) pairs."""
  text, starts = '', []
  for number, part in lines:
    text += ' ' if text and not text.endswith(' ') else ''
    starts.append((len(text), number))
    text += part
  return text, starts


def _comment_blocks(comments):
  """Joins (line, column, is alone on its line, text) of successive lines."""
  block, last = [], None
  for line, column, is_alone, text in comments:
    goes_with = last is not None and last[0] == line - 1 and is_alone and (
        last[1] == column)
    if block and not goes_with:
      yield _joined(block)
      block = []
    block.append((line, text))
    last = (line, column)
  if block:
    yield _joined(block)


def _python_tokens(text):
  return tokenize.generate_tokens(io.StringIO(text).readline)


def _comments(path, text):
  """Yields (line, column, is alone on its line, text)."""
  if path.endswith('.py'):
    for token in _python_tokens(text):
      if token.type == tokenize.COMMENT:
        line, column = token.start
        yield (line, column, not token.line[:column].strip(),
               token.string.strip('# '))
    return
  lines = text.split('\n')
  for line, comment in source_text.comments(text):
    column = lines[line - 1].find(comment)
    yield (line, column, not lines[line - 1][:column].strip(),
           comment.strip('/* '))


def _python_strings(text, begin=''):
  """Yields joined blocks, one for each literal that begins with `begin`."""
  for token in _python_tokens(text):
    if token.type == tokenize.STRING and token.string.startswith(begin):
      yield _joined([(token.start[0] + i, line.strip(' \'"'))
                     for i, line in enumerate(token.string.split('\n'))])


def _strings(path, text):
  """Yields joined blocks of adjacent string literals."""
  if path.endswith('.py'):
    yield from _python_strings(text)
    return
  block, last_end = [], None
  for line, begin, end, string in source_text.strings(text):
    if block and text[last_end:begin].strip():
      yield _joined(block)
      block = []
    block += [(line + i, part) for i, part in enumerate(string.split('\n'))]
    last_end = end
  if block:
    yield _joined(block)


def _places(blocks, patterns):
  """Yields (phrase, line) of each match."""
  for text, starts in blocks:
    # Names of code may be anything.
    text = re.sub(r'`[^`]*`', lambda match: '`' * len(match.group(0)), text)
    for phrase, pattern in patterns.items():
      for match in re.finditer(pattern, text):
        yield phrase, max(line for offset, line in starts
                          if offset <= match.start())


def find(files):
  """{phrase: [(path, line)]} of the product's files, sorted."""
  found = {phrase: [] for phrase in {**_COMMENTS, **_TEXTS}}
  for path, text in files.items():
    if rooms.is_test(path) or not path.endswith(
        ('.h', '.cc', '.cu', '.inc', '.proto', '.py')):
      continue
    comments = list(_comment_blocks(_comments(path, text)))
    places = list(_places(comments, {**_COMMENTS, **_TEXTS}))
    places += _places(_strings(path, text), _TEXTS)
    if path.endswith('.py'):
      places += _places(_python_strings(text, '"""'), _COMMENTS)
    for phrase, line in places:
      found[phrase].append((path, line))
  return {phrase: sorted(places) for phrase, places in found.items()}


def excess(files, limits=None):
  """Yields (path, line, message): all places of a phrase above its limit."""
  limits = LIMITS if limits is None else limits
  for phrase, places in find(files).items():
    limit = limits.get(phrase, 0)
    if len(places) > limit:
      for path, line in places:
        yield path, line, (
            '%s: there are %d, %d are allowed (tests/style/phrases.py); write '
            'subject, verb, object' % (phrase, len(places), limit))


def slack(files, limits=None):
  """A line for each limit that is above the number of places."""
  limits = LIMITS if limits is None else limits
  return [
      'lower the limit of %s in tests/style/phrases.py from %d to %d' %
      (phrase, limits.get(phrase, 0), len(places))
      for phrase, places in find(files).items()
      if len(places) < limits.get(phrase, 0)
  ]
