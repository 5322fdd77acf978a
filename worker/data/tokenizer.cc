#include "worker/data/tokenizer.h"

#include <algorithm>
#include <queue>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status/status_macros.h"
#include "nlohmann/json.hpp"

namespace atl::worker {
namespace {

using Json = nlohmann::json;

constexpr int32_t kIdMax = 1 << 24;
constexpr int64_t kGpt2RanksMax = 60000;

absl::Status Misfit(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("tokenizer: ", what));
}

// A field of an object; null if absent.
const Json& At(const Json& json, const char* name) {
  static const Json* const kNull = new Json();
  const auto found = json.is_object() ? json.find(name) : json.end();
  return json.is_object() && found != json.end() ? *found : *kNull;
}

bool IsTrue(const Json& json, const char* name) {
  const Json& value = At(json, name);
  return value.is_boolean() && value.get<bool>();
}

// GPT-2's characters for bytes: printable bytes are themselves; the others are
// code points from 256 on, in order.
std::vector<uint32_t> ByteCharacters() {
  std::vector<uint32_t> characters(256);
  uint32_t next = 256;
  for (uint32_t b = 0; b < 256; ++b) {
    const bool printable = (b >= 0x21 && b <= 0x7e) ||
                           (b >= 0xa1 && b <= 0xac) || (b >= 0xae && b <= 0xff);
    characters[b] = printable ? b : next++;
  }
  return characters;
}

std::string Utf8(uint32_t code) {  // Below 0x800.
  if (code < 0x80) return std::string(1, static_cast<char>(code));
  return {static_cast<char>(0xc0 | code >> 6),
          static_cast<char>(0x80 | (code & 0x3f))};
}

absl::StatusOr<std::string> AsBytes(
    const absl::flat_hash_map<std::string, char>& alphabet,
    absl::string_view token) {
  std::string bytes;
  while (!token.empty()) {
    const size_t length = static_cast<uint8_t>(token[0]) < 0x80 ? 1 : 2;
    const auto found = alphabet.find(token.substr(0, length));
    if (found == alphabet.end()) {
      return Misfit(absl::StrCat("token \"", token,
                                 "\" is outside the byte alphabet: only "
                                 "byte-level BPE is supported"));
    }
    bytes.push_back(found->second);
    token.remove_prefix(length);
  }
  return bytes;
}

// The expression of a pre-tokenizer: ByteLevel, or Split then ByteLevel.
absl::StatusOr<PreTokenizer> ReadPreTokenizer(const Json& json) {
  const Json* byte_level = &json;
  absl::string_view pattern = kGpt2Pattern;
  if (At(json, "type") == "Sequence") {
    const Json& steps = At(json, "pretokenizers");
    if (!steps.is_array() || steps.size() != 2 ||
        At(steps[0], "type") != "Split" ||
        At(steps[0], "behavior") != "Isolated" || IsTrue(steps[0], "invert")) {
      return Misfit(
          "pre_tokenizer is a sequence that is not Split (isolated), "
          "then ByteLevel");
    }
    byte_level = &steps[1];
    const Json& regex = At(At(steps[0], "pattern"), "Regex");
    if (!regex.is_string()) return Misfit("pre_tokenizer has no Regex");
    if (At(*byte_level, "use_regex") != false) {
      return Misfit("pre_tokenizer splits twice (use_regex)");
    }
    pattern = regex.get_ref<const std::string&>();
  } else if (At(json, "use_regex") == false) {
    return Misfit("pre_tokenizer does not split (use_regex)");
  }
  if (At(*byte_level, "type") != "ByteLevel") {
    return Misfit("pre_tokenizer is not ByteLevel");
  }
  if (IsTrue(*byte_level, "add_prefix_space")) {
    return Misfit("pre_tokenizer adds a space (add_prefix_space)");
  }
  if (pattern == kGpt2Pattern) return PreTokenizer::kGpt2;
  if (pattern == kLlama3Pattern) return PreTokenizer::kLlama3;
  return Misfit(absl::StrCat("pre_tokenizer splits by ", pattern,
                             ", which is neither GPT-2's expression nor Llama "
                             "3's"));
}

}  // namespace

class Tokenizer::Builder {
 public:
  absl::Status AddToken(const std::string& bytes, int64_t id) {
    RETURN_IF_ERROR(SetBytes(bytes, id));
    if (!made_.ids_.emplace(bytes, static_cast<int32_t>(id)).second) {
      return Misfit(absl::StrCat("token ", id, " comes twice"));
    }
    return absl::OkStatus();
  }
  absl::Status AddAdded(const std::string& text, int64_t id) {
    if (text.empty()) return Misfit("an added token is empty");
    // It may be in the vocabulary too.
    const bool known = id >= 0 && id < made_.vocab_size();
    if (!known || made_.bytes_[id].empty()) RETURN_IF_ERROR(SetBytes(text, id));
    made_.bytes_[id] = text;
    auto& list = made_.added_[static_cast<uint8_t>(text[0])];
    list.push_back({text, static_cast<int32_t>(id)});
    made_.added_has_newline_ |= absl::StrContains(text, '\n');
    std::stable_sort(list.begin(), list.end(),
                     [](const AddedToken& a, const AddedToken& b) {
                       return a.text.size() > b.text.size();
                     });
    return absl::OkStatus();
  }
  absl::Status AddMerge(const std::string& left, const std::string& right,
                        int32_t rank) {
    const auto a = made_.ids_.find(left), b = made_.ids_.find(right);
    const auto both = made_.ids_.find(left + right);
    if (a == made_.ids_.end() || b == made_.ids_.end() ||
        both == made_.ids_.end()) {
      return Misfit(absl::StrCat("merge ", rank,
                                 " is of tokens that are not in "
                                 "the vocabulary"));
    }
    made_.merges_.emplace(PairKey(a->second, b->second),
                          Merge{rank, both->second});
    return absl::OkStatus();
  }
  // Two tokens merge if their concatenation is a token; its id is the rank.
  void MergeByRank() {
    for (const auto& [bytes, id] : made_.ids_) {
      for (size_t cut = 1; cut < bytes.size(); ++cut) {
        const auto a = made_.ids_.find(bytes.substr(0, cut));
        if (a == made_.ids_.end()) continue;
        const auto b = made_.ids_.find(bytes.substr(cut));
        if (b == made_.ids_.end()) continue;
        made_.merges_.emplace(PairKey(a->second, b->second), Merge{id, id});
      }
    }
  }
  void Set(PreTokenizer pre_tokenizer, bool takes_whole_pieces) {
    made_.pre_tokenizer_ = pre_tokenizer;
    made_.takes_whole_pieces_ = takes_whole_pieces;
  }

  absl::StatusOr<Tokenizer> Build() && {
    for (int b = 0; b < 256; ++b) {
      const auto found = made_.ids_.find(std::string(1, static_cast<char>(b)));
      if (found == made_.ids_.end()) {
        return Misfit(absl::StrCat("byte ", b, " has no token"));
      }
      made_.byte_ids_[b] = found->second;
    }
    return std::move(made_);
  }

 private:
  absl::Status SetBytes(const std::string& bytes, int64_t id) {
    if (id < 0 || id > kIdMax) {
      return Misfit(absl::StrCat("id ", id, " is out of range"));
    }
    if (bytes.empty()) return Misfit(absl::StrCat("token ", id, " is empty"));
    if (id >= made_.vocab_size()) made_.bytes_.resize(id + 1);
    if (!made_.bytes_[id].empty()) {
      return Misfit(absl::StrCat("id ", id, " comes twice"));
    }
    made_.bytes_[id] = bytes;
    return absl::OkStatus();
  }

  Tokenizer made_;
};

absl::StatusOr<Tokenizer> Tokenizer::FromTiktoken(absl::string_view text) {
  Builder builder;
  int64_t count = 0;
  int64_t number = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    if (line.empty()) continue;
    const std::vector<absl::string_view> fields = absl::StrSplit(line, ' ');
    std::string bytes;
    int64_t rank = 0;
    if (fields.size() != 2 || !absl::Base64Unescape(fields[0], &bytes) ||
        !absl::SimpleAtoi(fields[1], &rank)) {
      return Misfit(absl::StrCat("line ", number,
                                 " is not base64, a space and a number"));
    }
    RETURN_IF_ERROR(builder.AddToken(bytes, rank));
    ++count;
  }
  builder.MergeByRank();
  builder.Set(
      count <= kGpt2RanksMax ? PreTokenizer::kGpt2 : PreTokenizer::kLlama3,
      /*takes_whole_pieces=*/true);
  return std::move(builder).Build();
}

namespace {

// The two tokens of an entry of model.merges: "a b", or ["a", "b"].
absl::StatusOr<std::pair<std::string, std::string>> ReadMerge(
    const Json& entry) {
  if (entry.is_array() && entry.size() == 2 && entry[0].is_string() &&
      entry[1].is_string()) {
    return std::make_pair(entry[0].get<std::string>(),
                          entry[1].get<std::string>());
  }
  if (entry.is_string()) {
    const std::vector<std::string> parts =
        absl::StrSplit(entry.get_ref<const std::string&>(), ' ');
    if (parts.size() == 2) return std::make_pair(parts[0], parts[1]);
  }
  return Misfit(
      absl::StrCat("model.merges has an invalid entry: ", entry.dump()));
}

absl::Status CheckModel(const Json& json) {
  const Json& model = At(json, "model");
  // Old files omit the type.
  if (!model.is_object() || model.value("type", Json("BPE")) != "BPE") {
    return Misfit("model is not BPE");
  }
  if (!At(json, "normalizer").is_null()) {
    return Misfit("it has a normalizer, which is not supported");
  }
  for (const char* name :
       {"dropout", "continuing_subword_prefix", "end_of_word_suffix"}) {
    const Json& value = At(model, name);
    if (!value.is_null() && value != "") {
      return Misfit(absl::StrCat("model.", name, " is set"));
    }
  }
  if (IsTrue(model, "byte_fallback"))
    return Misfit("model.byte_fallback is set");
  if (!At(model, "vocab").is_object()) return Misfit("model.vocab is missing");
  if (!At(model, "merges").is_array()) return Misfit("model.merges is missing");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Tokenizer> Tokenizer::FromJson(absl::string_view text) {
  const Json json = Json::parse(text.begin(), text.end(), nullptr,
                                /*allow_exceptions=*/false);
  if (!json.is_object()) return Misfit("it is not a JSON object");
  RETURN_IF_ERROR(CheckModel(json));
  ASSIGN_OR_RETURN(const PreTokenizer pre_tokenizer,
                   ReadPreTokenizer(At(json, "pre_tokenizer")));
  absl::flat_hash_map<std::string, char> alphabet;
  const std::vector<uint32_t> characters = ByteCharacters();
  for (int b = 0; b < 256; ++b) {
    alphabet[Utf8(characters[b])] = static_cast<char>(b);
  }
  Builder builder;
  const Json& model = At(json, "model");
  const Json& added = At(json, "added_tokens");
  absl::flat_hash_map<std::string, int64_t> added_ids;
  for (const Json& token : added.is_array() ? added : Json::array()) {
    const Json& content = At(token, "content");
    const Json& id = At(token, "id");
    if (!content.is_string() || !id.is_number_integer()) {
      return Misfit("an added token has no content or id");
    }
    if (IsTrue(token, "lstrip") || IsTrue(token, "rstrip") ||
        IsTrue(token, "single_word")) {
      return Misfit(absl::StrCat("added token ", content.dump(),
                                 " strips or is a single word"));
    }
    added_ids[content.get<std::string>()] = id.get<int64_t>();
  }
  for (const auto& [token, id] : At(model, "vocab").items()) {
    if (!id.is_number_integer()) return Misfit("an id is not a number");
    if (added_ids.contains(token)) continue;
    ASSIGN_OR_RETURN(const std::string bytes, AsBytes(alphabet, token));
    RETURN_IF_ERROR(builder.AddToken(bytes, id.get<int64_t>()));
  }
  for (const auto& [token, id] : added_ids) {
    RETURN_IF_ERROR(builder.AddAdded(token, id));
  }
  int32_t rank = 0;
  for (const Json& entry : At(model, "merges")) {
    ASSIGN_OR_RETURN(const auto pair, ReadMerge(entry));
    ASSIGN_OR_RETURN(const std::string left, AsBytes(alphabet, pair.first));
    ASSIGN_OR_RETURN(const std::string right, AsBytes(alphabet, pair.second));
    RETURN_IF_ERROR(builder.AddMerge(left, right, rank++));
  }
  builder.Set(pre_tokenizer, IsTrue(model, "ignore_merges"));
  return std::move(builder).Build();
}

void Tokenizer::EncodePiece(absl::string_view piece,
                            std::vector<int32_t>& ids) const {
  if (takes_whole_pieces_) {
    const auto whole = ids_.find(piece);
    if (whole != ids_.end()) {
      ids.push_back(whole->second);
      return;
    }
  }
  // Symbols in a list. The lowest rank merges first, of equal ranks the left.
  struct Symbol {
    int32_t id, before, after;  // -1: none; id -1: merged into another symbol.
  };
  struct Candidate {
    int32_t rank, left, left_id, right_id, id;
    bool operator>(const Candidate& other) const {
      return std::make_pair(rank, left) >
             std::make_pair(other.rank, other.left);
    }
  };
  const int32_t count = static_cast<int32_t>(piece.size());
  std::vector<Symbol> symbols(count);
  for (int32_t i = 0; i < count; ++i) {
    symbols[i] = {byte_ids_[static_cast<uint8_t>(piece[i])], i - 1,
                  i + 1 < count ? i + 1 : -1};
  }
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue;
  const auto consider = [&](int32_t left) {
    if (left < 0 || symbols[left].after < 0) return;
    const int32_t a = symbols[left].id, b = symbols[symbols[left].after].id;
    const auto found = merges_.find(PairKey(a, b));
    if (found == merges_.end()) return;
    queue.push({found->second.rank, left, a, b, found->second.id});
  };
  for (int32_t i = 0; i < count; ++i) consider(i);
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    Symbol& left = symbols[best.left];
    if (left.id != best.left_id || left.after < 0 ||
        symbols[left.after].id != best.right_id) {
      continue;  // One of the two has merged already.
    }
    Symbol& right = symbols[left.after];
    left.id = best.id;
    left.after = right.after;
    right.id = -1;
    if (left.after >= 0) symbols[left.after].before = best.left;
    consider(left.before);
    consider(best.left);
  }
  for (int32_t i = 0; i >= 0 && i < count; i = symbols[i].after) {
    ids.push_back(symbols[i].id);
  }
}

void Tokenizer::EncodePart(absl::string_view text,
                           std::vector<int32_t>& ids) const {
  while (!text.empty()) {
    const size_t length = NextPiece(pre_tokenizer_, text);
    EncodePiece(text.substr(0, length), ids);
    text.remove_prefix(length);
  }
}

std::vector<int32_t> Tokenizer::Encode(absl::string_view text) const {
  std::vector<int32_t> ids;
  size_t begin = 0;  // Begin of the text that is not encoded yet.
  for (size_t at = 0; at < text.size();) {
    const AddedToken* match = nullptr;
    for (const AddedToken& token : added_[static_cast<uint8_t>(text[at])]) {
      if (text.substr(at, token.text.size()) != token.text) continue;
      match = &token;
      break;
    }
    if (match == nullptr) {
      ++at;
      continue;
    }
    EncodePart(text.substr(begin, at - begin), ids);
    ids.push_back(match->id);
    at += match->text.size();
    begin = at;
  }
  EncodePart(text.substr(begin), ids);
  return ids;
}

int32_t Tokenizer::AddedTokenId(absl::string_view text) const {
  if (text.empty()) return -1;
  for (const AddedToken& token : added_[static_cast<uint8_t>(text[0])]) {
    if (token.text == text) return token.id;
  }
  return -1;
}

size_t Tokenizer::WholePieces(absl::string_view text) const {
  if (added_has_newline_) return 0;
  for (size_t at = text.size(); at-- > 1;) {
    if (text[at] == '\n' && absl::ascii_isalnum(text[at - 1])) return at;
  }
  return 0;
}

std::string Tokenizer::Decode(absl::Span<const int32_t> tokens) const {
  std::string text;
  for (const int32_t token : tokens) {
    if (token >= 0 && token < vocab_size()) text += bytes_[token];
  }
  return text;
}

}  // namespace atl::worker
