#include "worker/data/pre_tokenizer.h"

#include <cstdint>

#include "absl/strings/ascii.h"
#include "worker/data/unicode_classes.h"

namespace atl::worker {
namespace {

enum class Class { kLetter, kNumber, kSpace, kOther };

struct Character {
  Class kind = Class::kOther;
  bool is_newline = false;  // \r or \n
  size_t bytes = 1;
};

// Decodes the first code point; returns its length, or 0 if not UTF-8.
size_t DecodeUtf8(absl::string_view text, uint32_t& code) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte(0);
  if (first < 0x80) {
    code = first;
    return 1;
  }
  const size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < length) return 0;
  code = first & (0xffu >> (length + 1));
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
    code = code << 6 | (byte(i) & 0x3fu);
  }
  constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool valid = code >= kLeast[length] && code <= 0x10ffff &&
                     (code < 0xd800 || code > 0xdfff);
  return valid ? length : 0;
}

Character ReadCharacter(absl::string_view text) {
  Character character;
  uint32_t code = 0;
  const size_t bytes = DecodeUtf8(text, code);
  if (bytes == 0) return character;
  character.bytes = bytes;
  character.is_newline = code == '\r' || code == '\n';
  if (IsUnicodeLetter(code)) {
    character.kind = Class::kLetter;
  } else if (IsUnicodeNumber(code)) {
    character.kind = Class::kNumber;
  } else if (IsUnicodeSpace(code)) {
    character.kind = Class::kSpace;
  }
  return character;
}

// Bytes of the leading characters of `kind`, at most `count_max` characters.
size_t CountRun(Class kind, absl::string_view text,
                size_t count_max = absl::string_view::npos) {
  size_t at = 0;
  for (size_t count = 0; at < text.size() && count < count_max; ++count) {
    const Character character = ReadCharacter(text.substr(at));
    if (character.kind != kind) break;
    at += character.bytes;
  }
  return at;
}

size_t RunOfNewlines(absl::string_view text) {
  size_t at = 0;
  while (at < text.size() && (text[at] == '\r' || text[at] == '\n')) ++at;
  return at;
}

// 's|'t|'re|'ve|'m|'ll|'d
size_t Contraction(absl::string_view text, bool any_case) {
  if (text[0] != '\'') return 0;
  for (const absl::string_view ending :
       {"s", "t", "re", "ve", "m", "ll", "d"}) {
    const absl::string_view is = text.substr(1, ending.size());
    if (is.size() != ending.size()) continue;
    bool same = true;
    for (size_t i = 0; i < is.size(); ++i) {
      const char c = any_case ? absl::ascii_tolower(is[i]) : is[i];
      same &= c == ending[i];
    }
    if (same) return 1 + ending.size();
    // Case folding adds one more s, U+017F.
    if (any_case && ending == "s" && text.substr(1, 2) == "\xc5\xbf") return 3;
  }
  return 0;
}

// \s+(?!\S)|\s+, for text that begins with space.
size_t Spaces(absl::string_view text) {
  const size_t run = CountRun(Class::kSpace, text);
  if (run == text.size()) return run;
  // All but the last space, which belongs to the next piece; or the only one.
  size_t at = 0;
  for (size_t next = 0; next < run;) {
    at = next;
    next += ReadCharacter(text.substr(next)).bytes;
  }
  return at > 0 ? at : run;
}

// ` ?` before a run of `kind`.
size_t SpaceThenRun(Class kind, absl::string_view text) {
  const size_t space = text[0] == ' ' ? 1 : 0;
  const size_t run = CountRun(kind, text.substr(space));
  return run > 0 ? space + run : 0;
}

size_t NextGpt2(absl::string_view text) {
  if (const size_t n = Contraction(text, false); n > 0) return n;
  for (const Class kind : {Class::kLetter, Class::kNumber, Class::kOther}) {
    if (const size_t n = SpaceThenRun(kind, text); n > 0) return n;
  }
  return Spaces(text);
}

size_t NextLlama3(absl::string_view text) {
  if (const size_t n = Contraction(text, true); n > 0) return n;
  const Character first = ReadCharacter(text);
  // [^\r\n\p{L}\p{N}]?\p{L}+
  if (first.kind == Class::kLetter) return CountRun(Class::kLetter, text);
  if (first.kind != Class::kNumber && !first.is_newline) {
    const size_t run = CountRun(Class::kLetter, text.substr(first.bytes));
    if (run > 0) return first.bytes + run;
  }
  if (first.kind == Class::kNumber) return CountRun(Class::kNumber, text, 3);
  if (const size_t n = SpaceThenRun(Class::kOther, text); n > 0) {
    return n + RunOfNewlines(text.substr(n));
  }
  // \s*[\r\n]+: up to the last newline of a run of spaces.
  const size_t run = CountRun(Class::kSpace, text);
  const size_t newline = text.substr(0, run).find_last_of("\r\n");
  if (newline != absl::string_view::npos) return newline + 1;
  return Spaces(text);
}

}  // namespace

size_t NextPiece(PreTokenizer kind, absl::string_view text) {
  return kind == PreTokenizer::kGpt2 ? NextGpt2(text) : NextLlama3(text);
}

}  // namespace atl::worker
