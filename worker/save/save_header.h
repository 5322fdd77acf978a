// The JSON of a save's header. For save_file only. Pure. Thread-safe.

#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
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

std::string ToHex(const google::protobuf::MessageLite& message);

// SaveHeader without its contributions, and back. DATA_LOSS: invalid.
nlohmann::json HeaderJson(const SaveHeader& header);
absl::StatusOr<SaveHeader> ParseHeader(const nlohmann::json& json);

}  // namespace atl::worker
