// Text files become token files, which `[data] format = "llmc"` reads.

#ifndef WORKER_API_TOKENIZE_H_
#define WORKER_API_TOKENIZE_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>

#include "absl/status/statusor.h"
#include "worker/data/tokenizer.h"

namespace atl::worker {

// Reads a tokenizer.json or, by its name, a *.tiktoken file.
//
// INVALID_ARGUMENT: it is not one that this program has; the message names the
// file and the field. Others: the system's.
absl::StatusOr<Tokenizer> ReadTokenizer(const std::string& path);

struct TokenizeOptions {
  std::string tokenizer;  // A file: ReadTokenizer.
  std::string input;      // A file, or a directory: all regular files below it.
  std::string output;     // Directory, made if it is not there.
  // An added token that stands before each file. Not set: what models end a
  // text with, if the tokenizer has it ("<|endoftext|>", "<|end_of_text|>");
  // empty: nothing.
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
  int32_t vocab_size = 0;      // What [model] vocab_size is at least.
  std::string document_token;  // Empty: none.
};

// Encodes every file, in the order of their paths, as one sequence. A file is
// read in parts, so that it may be longer than memory, if its lines are not.
// Blocks; thread-safe for different outputs.
//
// INVALID_ARGUMENT: ReadTokenizer, or the document token is not the
// tokenizer's. NOT_FOUND: no input. ALREADY_EXISTS: the output has tokens.
// CANCELLED: stopped; the output has the files that were full. Others: the
// system's.
absl::StatusOr<TokenizeResult> Tokenize(const TokenizeOptions& options);

}  // namespace atl::worker

#endif  // WORKER_API_TOKENIZE_H_
