// Cuts text into the pieces that a byte-level BPE merges within.
//
// Pure. Thread-safe. Text is UTF-8; each byte of what is not counts as a
// character that is neither letter, number nor space.

#ifndef WORKER_DATA_PRE_TOKENIZER_H_
#define WORKER_DATA_PRE_TOKENIZER_H_

#include <cstddef>

#include "absl/strings/string_view.h"

namespace atl::worker {

// The two regular expressions that are in use; the first alternative that
// matches is taken.
enum class PreTokenizer {
  // GPT-2's:
  //   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+
  //   |\s+(?!\S)|\s+
  kGpt2,
  // Llama 3's, which is also cl100k_base's:
  //   (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}
  //   | ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
  kLlama3,
};

// The expressions as configuration files have them.
inline constexpr absl::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
inline constexpr absl::string_view kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// Bytes of the first piece of `text`, which is not empty.
size_t NextPiece(PreTokenizer kind, absl::string_view text);

}  // namespace atl::worker

#endif  // WORKER_DATA_PRE_TOKENIZER_H_
