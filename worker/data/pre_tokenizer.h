// Cuts text into the pieces within which a byte-level BPE merges. Pure.
// Thread-safe. Text is UTF-8; each invalid byte counts as a character that is
// neither letter, number nor space.

#pragma once

#include <cstddef>

#include "absl/strings/string_view.h"

namespace atl::worker {

// The supported regular expressions. The first alternative that matches wins.
enum class PreTokenizer {
  // GPT-2's:
  //   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+
  //   |\s+(?!\S)|\s+
  kGpt2,
  // Llama 3's and cl100k_base's:
  //   (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}
  //   | ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
  kLlama3,
};

// As in configuration files.
inline constexpr absl::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
inline constexpr absl::string_view kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// Bytes of the first piece of `text`. Requires: `text` is not empty.
size_t NextPiece(PreTokenizer kind, absl::string_view text);

}  // namespace atl::worker
