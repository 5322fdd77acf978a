// Byte-level BPE: text to token ids and back, from a Hugging Face file
// (tokenizer.json) or an OpenAI or Meta file (*.tiktoken).
//
// tokenizer.json: a BPE model over bytes with the pre-tokenizer of GPT-2 or
// Llama 3 (worker/data/pre_tokenizer.h), its added tokens, ignore_merges. The
// post-processor is ignored: no token is added around a text.
//
// *.tiktoken: lines "BASE64 RANK"; the rank is the id. The file does not name
// its expression: up to 60,000 ranks have GPT-2's (r50k_base), more have Llama
// 3's (cl100k_base, Llama 3). It has no special tokens.
//
// Immutable: thread-safe.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "worker/data/pre_tokenizer.h"

namespace atl::worker {

class Tokenizer {
 public:
  // Parses a tokenizer.json. INVALID_ARGUMENT: not JSON of this form, or an
  // unsupported tokenizer: another model, a normalizer, another expression. The
  // message names the field.
  static absl::StatusOr<Tokenizer> FromJson(absl::string_view json);

  // Parses a *.tiktoken file. INVALID_ARGUMENT: a line has another form, a rank
  // or a token comes twice, or a byte has no token; the message names the line.
  static absl::StatusOr<Tokenizer> FromTiktoken(absl::string_view text);

  // Ids of `text`, any bytes. Added tokens in the text become their ids.
  std::vector<int32_t> Encode(absl::string_view text) const;

  // The bytes of `tokens`; unknown ids give none.
  std::string Decode(absl::Span<const int32_t> tokens) const;

  // The id of the added token `text`; -1 if none.
  int32_t AddedTokenId(absl::string_view text) const;

  // Bytes of a prefix of `text` that can be encoded apart, as when a file is
  // read in parts: up to the last line end behind an ASCII letter or digit,
  // where every expression ends a piece. 0: none.
  size_t WholePieces(absl::string_view text) const;

  // One more than the largest id.
  int32_t vocab_size() const { return static_cast<int32_t>(bytes_.size()); }

 private:
  struct Merge {
    int32_t rank = 0;
    int32_t id = 0;  // The merged token's.
  };
  struct AddedToken {
    std::string text;
    int32_t id = 0;
  };
  class Builder;

  static uint64_t PairKey(int32_t left, int32_t right) {
    return uint64_t{static_cast<uint32_t>(left)} << 32 |
           static_cast<uint32_t>(right);
  }
  // Requires: no added tokens in `text`.
  void EncodePart(absl::string_view text, std::vector<int32_t>& ids) const;
  void EncodePiece(absl::string_view piece, std::vector<int32_t>& ids) const;

  PreTokenizer pre_tokenizer_ = PreTokenizer::kGpt2;
  // A piece that is a token needs no merges.
  bool takes_whole_pieces_ = false;
  std::vector<std::string> bytes_;  // By id; empty: no token.
  absl::flat_hash_map<std::string, int32_t> ids_;  // Without added tokens.
  absl::flat_hash_map<uint64_t, Merge> merges_;    // By PairKey.
  int32_t byte_ids_[256] = {};
  bool added_has_newline_ = false;
  // By their first byte, longer ones first.
  std::vector<AddedToken> added_[256];
};

}  // namespace atl::worker
