#!/usr/bin/env python3
"""Writes unicode_classes.cc: which code points are letters, numbers, spaces.

    make_unicode_classes.py > unicode_classes.cc

The source is Python's unicodedata, with its version of Unicode.
"""

import unicodedata

# White_Space of the Unicode Character Database.
SPACES = [(0x9, 0xd), (0x20, 0x20), (0x85, 0x85), (0xa0, 0xa0),
          (0x1680, 0x1680), (0x2000, 0x200a), (0x2028, 0x2029),
          (0x202f, 0x202f), (0x205f, 0x205f), (0x3000, 0x3000)]


def ranges(letter):
    """Runs of code points whose general category begins with `letter`."""
    runs = []
    for code in range(0x110000):
        if unicodedata.category(chr(code))[0] != letter:
            continue
        if runs and runs[-1][1] == code - 1:
            runs[-1][1] = code
        else:
            runs.append([code, code])
    return runs


def array(name, runs):
    print("constexpr Range %s[] = {" % name)
    line = "   "
    for first, last in runs:
        item = " {0x%x, 0x%x}," % (first, last)
        if len(line) + len(item) > 80:
            print(line)
            line = "   "
        line += item
    print(line)
    print("};\n")


print("""// Made by make_unicode_classes.py: Unicode %s.

#include "worker/data/unicode_classes.h"

#include <algorithm>
#include <cstdint>
#include <iterator>

namespace atl::worker {
namespace {

struct Range {
  uint32_t first, last;
};

// clang-format off""" % unicodedata.unidata_version)
array("kLetters", ranges("L"))
array("kNumbers", ranges("N"))
array("kSpaces", SPACES)
print("""// clang-format on

template <typename T>
bool IsIn(const T& ranges, uint32_t code) {
  const auto* after = std::upper_bound(
      std::begin(ranges), std::end(ranges), code,
      [](uint32_t value, const Range& range) { return value < range.first; });
  return after != std::begin(ranges) && code <= (after - 1)->last;
}

}  // namespace

bool IsUnicodeLetter(uint32_t code) { return IsIn(kLetters, code); }
bool IsUnicodeNumber(uint32_t code) { return IsIn(kNumbers, code); }
bool IsUnicodeSpace(uint32_t code) { return IsIn(kSpaces, code); }

}  // namespace atl::worker""")
