// Makes token files, for `[data] format = "llmc"`, from text files.

#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>

#include "absl/status/statusor.h"
#include "worker/data/tokenizer.h"

namespace atl::worker {

// Reads a tokenizer.json or, by name, a *.tiktoken file. INVALID_ARGUMENT: an
// unsupported tokenizer; names the file and the field. Others: the system's.
absl::StatusOr<Tokenizer> ReadTokenizer(const std::string& path);

struct TokenizeOptions {
  std::string tokenizer;  // A file for ReadTokenizer.
  std::string input;      // A file, or a directory: all regular files below it.
  std::string output;     // Directory, created if necessary.
  // An added token before each file. Unset: the usual end of a text, if the
  // tokenizer has it ("<|endoftext|>", "<|end_of_text|>"). Empty: none.
  std::optional<std::string> document_token;
  std::stop_token stop;
  // Bytes done and in all; may be empty.
  std::function<void(int64_t, int64_t)> on_progress;
};

struct TokenizeResult {
  int64_t input_file_count = 0;
  int64_t input_bytes = 0;
  int64_t token_count = 0;
  int64_t token_bytes = 0;  // 2 or 4.
  int output_file_count = 0;
  int32_t vocab_size = 0;      // The least [model] vocab_size.
  std::string document_token;  // Empty: none.
};

// Encodes all files, in the order of their paths, as one sequence. Reads a file
// in parts, so it may exceed memory if its lines do not. Blocks; thread-safe
// for different outputs.
//
// INVALID_ARGUMENT: ReadTokenizer, or the tokenizer lacks the document token.
// NOT_FOUND: no input. ALREADY_EXISTS: the output has tokens. CANCELLED:
// stopped; full output files stay. Others: the system's.
absl::StatusOr<TokenizeResult> Tokenize(const TokenizeOptions& options);

}  // namespace atl::worker
