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
    print("constexpr uint16_t %s[] = {" % name)
    line = "   "
    end = 0
    for first, last in runs:
        item = " %d, %d," % (first - end, last - first)
        end = last + 1
        if len(line) + len(item) > 80:
            print(line)
            line = "   "
        line += item
    print(line)
    print("};\n")


print("""// Made by make_unicode_classes.py: Unicode %s.

#include "worker/data/unicode_classes.h"

#include <algorithm>
#include <vector>

#include "absl/types/span.h"

namespace atl::worker {
namespace {

// A run of a class is two numbers: the code points from the end of the run
// before it to its first one, and those after its first one.
// clang-format off""" % unicodedata.unidata_version)
array("kLetters", ranges("L"))
array("kNumbers", ranges("N"))
array("kSpaces", SPACES)
print("""// clang-format on

class Runs {
 public:
  explicit Runs(absl::Span<const uint16_t> steps) {
    uint32_t end = 0;
    for (size_t i = 0; i < steps.size(); i += 2) {
      firsts_.push_back(end + steps[i]);
      end = firsts_.back() + steps[i + 1] + 1;
      ends_.push_back(end);
    }
  }
  bool Has(uint32_t code) const {
    const auto after = std::upper_bound(firsts_.begin(), firsts_.end(), code);
    const auto count = after - firsts_.begin();
    return count > 0 && code < ends_[count - 1];
  }

 private:
  std::vector<uint32_t> firsts_, ends_;
};

}  // namespace

bool IsUnicodeLetter(uint32_t code) {
  static const Runs* const runs = new Runs(kLetters);
  return runs->Has(code);
}

bool IsUnicodeNumber(uint32_t code) {
  static const Runs* const runs = new Runs(kNumbers);
  return runs->Has(code);
}

bool IsUnicodeSpace(uint32_t code) {
  static const Runs* const runs = new Runs(kSpaces);
  return runs->Has(code);
}

}  // namespace atl::worker""")
