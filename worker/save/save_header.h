// The JSON of a save's header. For save_file only. Pure. Thread-safe.

#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/message_lite.h"
#include "nlohmann/json.hpp"
#include "worker/save/save_file.h"

namespace atl::worker {

// DATA_LOSS, with what is wrong.
absl::Status Damaged(absl::string_view what);

// The number `name`; false: `json` has no such whole number.
template <typename T>
bool Get(const nlohmann::json& json, const char* name, T& value) {
  const auto found = json.find(name);
  if (found == json.end() || !found->is_number_integer()) return false;
  value = found->template get<T>();
  return true;
}

// The list of messages `name`, each in hex. DATA_LOSS: no such list.
template <typename Message>
absl::StatusOr<std::vector<Message>> GetMessages(const nlohmann::json& json,
                                                 const char* name) {
  const auto found = json.find(name);
  if (found == json.end() || !found->is_array()) {
    return Damaged(absl::StrCat("its header has no ", name));
  }
  std::vector<Message> messages;
  for (const nlohmann::json& hex : *found) {
    Message message;
    if (!hex.is_string() || !message.ParseFromString(absl::HexStringToBytes(
                                hex.get<std::string>()))) {
      return Damaged(absl::StrCat("one of its ", name, " cannot be read"));
    }
    messages.push_back(std::move(message));
  }
  return messages;
}

std::string ToHex(const google::protobuf::MessageLite& message);

// SaveHeader without its contributions, and back. DATA_LOSS: invalid.
nlohmann::json HeaderJson(const SaveHeader& header);
absl::StatusOr<SaveHeader> ParseHeader(const nlohmann::json& json);

}  // namespace atl::worker
